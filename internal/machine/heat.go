package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Codes of what [Heat] and [UnderLoad] say.
const (
	codeHeat          = "heat"
	codeHeldAtRest    = "gpu_throttled_at_rest"
	codeCPUThrottled  = "cpu_throttled"
	codeGPUThrottled  = "gpu_throttled"
	codeGPUClockMoved = "gpu_clock_moved"
	codeCPUClockMoved = "cpu_clock_moved"
	codeBlockThrottle = "gpu_throttled_in_blocks"
	codeBlockClock    = "gpu_clock_moved_in_blocks"
)

// HeatCodes are the codes of [Heat]'s warnings, LoadCodes those of
// [UnderLoad]'s.
func HeatCodes() []string { return []string{codeHeat, codeHeldAtRest, codeCPUThrottled} }

// LoadCodes are the codes of [UnderLoad]'s warnings.
func LoadCodes() []string {
	return []string{codeGPUThrottled, codeGPUClockMoved, codeCPUClockMoved, codeBlockThrottle, codeBlockClock}
}

// AfterBlocks says what was read of the GPU after the timed blocks of a cell:
// what held its clocks down, and how far they moved over all blocks.
func AfterBlocks(configurations []results.Configuration) []results.Warning {
	d := doubts{}
	var what, advice []string
	low, high := 0.0, 0.0
	for i := range configurations {
		c := &configurations[i]
		for _, s := range c.Machine {
			if s.Name == GPUClockHz && s.Min > 0 {
				if low == 0 || s.Min < low {
					low = s.Min
				}
				high = max(high, s.Max)
			}
			for _, r := range reasons {
				if s.Name != GPUHeldPrefix+r.name || s.Max == 0 {
					continue
				}
				what = append(what, fmt.Sprintf("%s after blocks of %s", r.name, c.Key))
				if !slices.Contains(advice, r.advice) {
					advice = append(advice, r.advice)
				}
			}
		}
	}
	if len(what) > 0 {
		d.add(codeBlockThrottle, "the GPU's clocks were held down by %s; %s", strings.Join(what, ", "), strings.Join(advice, "; "))
	}
	if low > 0 && 1-low/high >= gpuClockShare {
		d.add(codeBlockClock, "the GPU's clock lay between %.0f and %.0f MHz after blocks; heat or a power limit moves it: choose one that it can hold with `nvidia-smi --lock-gpu-clocks`",
			low/1e6, high/1e6)
	}
	return d.list
}

// Shares by which a clock may move under load between the processes of a cell:
// a GPU's steps follow it in proportion, and a core's changes with its
// neighbours' work.
const (
	gpuClockShare = .03
	cpuClockShare = .10
)

// reason is what holds a GPU's clocks down, by NVML's name, and what to do
// about it. Idleness and clocks that somebody chose are none.
type reason struct{ name, advice string }

const coolDown = "let it cool down, and look at its fans and the air around it"

var reasons = []reason{
	{"hw_thermal_slowdown", coolDown},
	{"sw_thermal_slowdown", coolDown},
	{"hw_power_brake", "the power supply asks for it: look at the supply and at what else hangs on it"},
	{"hw_slowdown", "`nvidia-smi -q -d PERFORMANCE` says whether heat or the power supply is the cause"},
	{"sw_power_cap", "it reaches its power limit: choose a clock that it can hold with `nvidia-smi --lock-gpu-clocks`, or raise the limit"},
}

// atRest are the reasons that an idle GPU gives only if something is wrong.
func (r reason) atRest() bool { return r.name != "sw_power_cap" }

// Heat says what the moments of a run tell of its sessions: what was hot after
// it, what held clocks down, and how often. How a clock differs between them
// says nothing: nothing of the run was at work.
func Heat(moments []results.Moment) []results.Warning {
	d := doubts{}
	for i, m := range moments {
		if i > 0 { // the first is in the environment's readings
			d.hotMoment(m)
		}
	}
	for _, m := range moments {
		d.heldMoment(m)
	}
	d.throttled(moments)
	return d.list
}

// when names a moment.
func when(m results.Moment) string {
	if m.Session == 0 {
		return "at the " + m.When + " of the run"
	}
	return fmt.Sprintf("at the %s of session %d", m.When, m.Session+1)
}

func (d *doubts) hotMoment(m results.Moment) {
	for _, r := range m.Readings {
		if chip, ok := hot(r); ok {
			d.add(codeHeat, "%s was at %.0f degrees Celsius %s and may have throttled; let the machine cool down between runs, or look at its fans",
				chip, r.Value, when(m))
		}
	}
}

func (d *doubts) heldMoment(m results.Moment) {
	for _, r := range reasons {
		if n, ok := find(m.Readings, GPUHeldPrefix+r.name); ok && n > 0 && r.atRest() {
			d.add(codeHeldAtRest, "%s held the clocks of %s down %s; %s", r.name, gpus(n), when(m), r.advice)
		}
	}
}

func gpus(n float64) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%.0f GPUs", n)
}

// throttled looks for counts of the kernel's that rose during a session. They
// count from the system's start, so what was before a session does not matter.
func (d *doubts) throttled(moments []results.Moment) {
	total := 0.0
	for i, end := range moments {
		if i == 0 || end.When != results.AtEnd || moments[i-1].Session != end.Session {
			continue
		}
		before, ok := find(moments[i-1].Readings, CPUThrottles)
		after, again := find(end.Readings, CPUThrottles)
		if ok && again {
			total += max(after-before, 0)
		}
	}
	if total > 0 {
		d.add(codeCPUThrottled, "heat held the CPU's clock down %.0f times during the run; %s", total, coolDown)
	}
}

// UnderLoad says what the readings of a cell's finished processes tell, which
// were taken while steps ran: what held a GPU down, and clocks that differ
// between processes.
func UnderLoad(processes []results.Process) []results.Warning {
	var read [][]results.Reading
	for _, p := range processes {
		if p.Status == results.Done && len(p.Readings) > 0 {
			read = append(read, p.Readings)
		}
	}
	d := doubts{}
	d.heldUnderLoad(read)
	d.moved(codeGPUClockMoved, "the GPU's", GPUClockHz, gpuClockShare, read,
		"heat or a power limit moves it: choose one that it can hold with `nvidia-smi --lock-gpu-clocks`")
	d.moved(codeCPUClockMoved, "the CPU's", CPUFrequencyHz, cpuClockShare, read,
		"switch boost off or fix the clock with `cpupower frequency-set`, and end what else is running")
	return d.list
}

func (d *doubts) heldUnderLoad(read [][]results.Reading) {
	var what, advice []string
	for _, r := range reasons {
		n := 0
		for _, list := range read {
			if v, ok := find(list, GPUHeldPrefix+r.name); ok && v > 0 {
				n++
			}
		}
		if n > 0 {
			what = append(what, fmt.Sprintf("by %s in %d of %d processes", r.name, n, len(read)))
			if !slices.Contains(advice, r.advice) {
				advice = append(advice, r.advice)
			}
		}
	}
	if len(what) > 0 {
		d.add(codeGPUThrottled, "the GPU's clocks were held down under load: %s; %s", strings.Join(what, ", "), strings.Join(advice, "; "))
	}
}

// moved compares a clock between processes, by how far the lowest lies below
// the highest.
func (d *doubts) moved(code, whose, name string, share float64, read [][]results.Reading, advice string) {
	var hz []float64
	for _, list := range read {
		if v, ok := find(list, name); ok && v > 0 {
			hz = append(hz, v)
		}
	}
	if len(hz) < 2 {
		return
	}
	low, high := slices.MinFunc(hz, cmp.Compare), slices.MaxFunc(hz, cmp.Compare)
	if 1-low/high < share {
		return
	}
	d.add(code, "%s clock under load lay between %.0f and %.0f MHz in %d processes; %s", whose, low/1e6, high/1e6, len(hz), advice)
}

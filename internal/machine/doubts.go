package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Thresholds of doubt.
const (
	hotCelsius    = 90   // most processors throttle between 95 and 105
	hotGPUCelsius = 85   // most GPUs between 87 and 95
	busyShare     = .5   // of the cores, as load
	lowMemory     = .1   // of all, as available
	coarseStepNs  = 1000 // of the clock
	slowReadNs    = 200  // of the clock: a time stamp counter takes 20 to 60
	gapShare      = .02  // of a loop's time not run
	dirtyRevision = "program_dirty"
)

// Doubts says what about a machine makes its figures less certain, each with
// what to do about it. It needs no calibration, and says more with one.
func Doubts(env results.Environment) []results.Warning {
	d := doubts{env: env}
	d.build()
	d.clockRate()
	d.neighbours()
	d.settings()
	d.gpu()
	d.calibration()
	return d.list
}

type doubts struct {
	env  results.Environment
	list []results.Warning
}

func (d *doubts) add(code, format string, args ...any) {
	d.list = append(d.list, results.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

// value returns a field's value; empty if it is not known.
func (d *doubts) value(name string) string {
	f, _ := d.env.Field(name)
	return f.Value
}

func (d *doubts) number(name string) (float64, bool) {
	v, err := strconv.ParseFloat(d.value(name), 64)
	return v, err == nil && v > 0
}

// first returns the first number that is known.
func (d *doubts) first(names ...string) (float64, bool) {
	for _, n := range names {
		if v, ok := d.number(n); ok {
			return v, true
		}
	}
	return 0, false
}

func find(list []results.Reading, name string) (float64, bool) {
	for _, r := range list {
		if r.Name == name {
			return r.Value, true
		}
	}
	return 0, false
}

func (d *doubts) build() {
	if d.value(ProgramDirty) == "true" {
		d.add(dirtyRevision, "the program was built from a checkout with local changes; commit them, so that the revision says what ran")
	}
	if d.value(GoRace) == on {
		d.add("race_detector", "the program was built with the race detector, which slows every launch; build it without -race")
	}
}

func (d *doubts) clockRate() {
	governor := d.value(CPUGovernor)
	if governor != "" && governor != "performance" && d.value(CPUEnergyPreference) != "performance" {
		d.add("governor", "the CPU governor is %s, so the clock rate follows the load; "+
			"set it with `cpupower frequency-set -g performance`", governor)
	}
	if d.value(CPUBoost) == on {
		d.add("boost", "CPU boost is on, so the clock rate depends on temperature and on the other cores; "+
			"switch it off where figures of different hours are compared")
	}
	if d.value(MachinePower) == "battery" {
		d.add("battery", "the machine runs on battery, which limits its clocks; connect it to mains")
	}
	for _, r := range d.env.Readings {
		if chip, ok := hot(r); ok {
			d.add("hot", "%s is at %.0f degrees Celsius and may throttle; let the machine cool down, or look at its fans", chip, r.Value)
		}
	}
}

// hot says which chip a reading finds near its limit, if it does.
func hot(r results.Reading) (chip string, is bool) {
	chip, is = strings.CutPrefix(r.Name, TemperaturePrefix)
	limit := float64(hotCelsius)
	if r.Name == GPUTemperature {
		limit = hotGPUCelsius
	}
	return chip, is && r.Value >= limit
}

func (d *doubts) neighbours() {
	cores, ok := d.first(CPUCores, CPUThreads)
	if load, have := find(d.env.Readings, Load1); ok && have && load > busyShare*cores {
		d.add("load", "the load was %.1f on %.0f cores at the start; wait until the machine is idle and run again", load, cores)
	}
	switch v := d.value(MachineVirtual); v {
	case "", none:
	default:
		kind := "a virtual machine"
		if v != present {
			kind += " (" + v + ")"
		}
		d.add("virtual_machine", "this is %s, where others take CPU time unseen; use more processes, and compare runs of the same hour only", kind)
	}
	usable, ok := d.first(CPUUsable, CPUThreads)
	if limit, have := d.number(CgroupCPUs); ok && have && limit < usable {
		d.add("cpu_quota", "a control group allows %s of %.0f CPUs and stops the program when they are used up; "+
			"raise the quota, or pin the container to whole CPUs instead", quota(limit), usable)
	}
	total, ok := d.number(MemoryTotalBytes)
	if free, have := find(d.env.Readings, MemoryAvailable); ok && have && free < lowMemory*total {
		d.add("memory_low", "only %.0f %% of the memory is available, so pages may be swapped out; end what else is running", 100*free/total)
	}
}

func (d *doubts) settings() {
	isSet := func(name string) bool {
		v := d.value(EnvPrefix + name)
		return v != "" && v != "0" && v != "(empty)"
	}
	if isSet("CUDA_LAUNCH_BLOCKING") {
		d.add("launch_blocking", "CUDA_LAUNCH_BLOCKING is set, so every launch waits for its kernel; unset it")
	}
	for _, name := range []string{"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD"} {
		if isSet(name) {
			d.add("injected", "%s is set, so a tool may sit between the program and its libraries; unset it for timed runs", name)
		}
	}
	if v := strings.ToUpper(d.value(EnvPrefix + "NCCL_DEBUG")); v == "INFO" || v == "TRACE" {
		d.add("nccl_debug", "NCCL_DEBUG is %s, so NCCL writes while it works; unset it for timed runs", v)
	}
	if isSet("CUDNN_LOGINFO_DBG") || isSet("CUDNN_LOGLEVEL_DBG") {
		d.add("cudnn_log", "cuDNN's log is switched on and is written within calls; unset CUDNN_LOGINFO_DBG and CUDNN_LOGLEVEL_DBG for timed runs")
	}
}

func (d *doubts) gpu() {
	if d.value(GPUPersistence) == off {
		d.add("gpu_persistence", "the GPU's persistence mode is off, so the driver is set up anew by the first program; "+
			"switch it on with `nvidia-smi -pm 1`")
	}
	if d.value(GPUMIG) == on {
		d.add("gpu_mig", "the GPU is split into instances (MIG), whose neighbours share its power; compare with runs on the same instance only")
	}
}

func (d *doubts) calibration() {
	c := d.env.Calibration
	if v, ok := find(c, ClockStepNs); ok && v > coarseStepNs {
		d.add("clock_coarse", "the clock moves in steps of %.0f ns, coarser than a launch; use more steps a block", v)
	}
	if v, ok := find(c, ClockReadNs); ok && v > slowReadNs {
		d.add("clock_slow", "reading the clock takes %.0f ns (clock source %s), which adds to every short figure; choose a faster clock source, such as tsc",
			v, unknown(d.value(ClockSource)))
	}
	if v, ok := find(c, ClockBackwards); ok && v > 0 {
		d.add("clock_backwards", "the clock went back %.0f times; choose another clock source than %s", v, unknown(d.value(ClockSource)))
	}
	if v, ok := find(c, PauseShare); ok && v > gapShare {
		d.add("interrupted", "a loop that did nothing was kept from running for %.0f %% of its time; end what else is running, or ask for CPUs of your own", 100*v)
	}
}

func unknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

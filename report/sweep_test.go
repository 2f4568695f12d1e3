package report_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// sweep makes a record that looks like a GPU's: a step is limited by the host
// at small batches and by the device at large ones. Its parts are those of the
// harness, its figures come from the small model in timesOf.
type sweep struct {
	processes int
	seed      uint64
	cpu       bool
	batches   []int
	gpus      []int
	dispatch  []int64
	modes     []string
}

func h200() sweep {
	return sweep{processes: 3, seed: 7, batches: []int{1, 4, 16, 64, 256}, gpus: []int{1}, dispatch: []int64{0},
		modes: []string{"eager/event", "eager/host", "graph/event", "graph/host", "step/inside"}}
}

// times of one step in nanoseconds.
type times struct{ step, submit, wait, host float64 }

// timesOf is what a step takes: the larger of the device's work and the
// host's, where host joins add both and a delay each.
func timesOf(k results.ConfigurationKey, batch, gpus int) times {
	const nodes, graphs, joins = 480, 22, 9
	device := 1.15e6 + 0.36e6*float64(batch) + 0.12e6*math.Log2(float64(gpus))*math.Sqrt(float64(batch)/8)
	var t times
	switch k.Mode {
	case "eager":
		// Ranks share the host, and eager ones get in each other's way.
		t.submit = nodes * (4200 + float64(k.DispatchNs)) * (1 + 0.22*math.Log2(float64(gpus)))
	case "graph":
		t.submit, device = graphs*9500, device*0.985
	case "step":
		t.submit, device = 2*31000, device*0.97
	}
	t.host = 55e3 + 3e3*float64(joins)
	switch k.Sync {
	case "host":
		t.wait = joins*12e3 + max(0, device-t.submit)*0.93
		t.step = max(device, t.submit) + joins*24e3
	default:
		t.step = max(device+28e3, t.submit+t.host)
	}
	return t
}

func (s sweep) named(name string) report.Named { return report.Named{Name: name, Record: s.record()} }

func (s sweep) record() *results.Record {
	noise := rand.New(rand.NewPCG(s.seed, 1))
	r := &results.Record{
		Schema:  results.Schema{Name: results.SchemaName, Major: results.SchemaMajor, Minor: results.SchemaMinor},
		Created: time.Date(2026, 7, 31, 10, 11, 12, 0, time.UTC),
		Program: results.Program{Version: "0.3.0", Revision: "4f2a91c07d3be5", Go: "go1.26"},
		Host:    results.Host{OS: "linux", Arch: "amd64", CPUs: 96},
		Device:  results.Device{Name: "cuda", Description: "CUDA 12.9 on NVIDIA H200"},
		Environment: results.Environment{Fields: []results.EnvironmentField{
			{Name: "gpu.name", Value: "NVIDIA H200", Role: results.Bed},
			{Name: "cpu.model", Value: "AMD EPYC 9654", Role: results.Bed},
			{Name: "driver.version", Value: "575.57.08", Role: results.Subject},
		}},
	}
	if s.cpu {
		r.Device = results.Device{Name: "cpu", Description: "reference device on the CPU"}
		r.Environment.Fields = r.Environment.Fields[1:2]
	}
	for _, gpus := range s.gpus {
		for _, batch := range s.batches {
			r.Cells = append(r.Cells, s.cell(noise, batch, gpus))
		}
	}
	return r
}

func (s sweep) cell(noise *rand.Rand, batch, gpus int) results.Cell {
	key := results.DefaultCellKey()
	key.Workload, key.Batch, key.GPUs, key.Device, key.Kernels = "resnet50", batch, gpus, "cuda", "cudnn"
	key.Resolution = results.Resolution{Begin: 224, Final: 224}
	if s.cpu {
		key.Device, key.Kernels, key.Workload = "cpu", "reference", "resnet20-cifar"
	}
	c := results.Cell{Key: key, Steps: 20, Blocks: 5, Status: results.Done,
		Verify: results.Verify{Equal: true, Tensors: 161, Bytes: 205 << 20, Steps: 4}}
	for p := range s.processes {
		c.Processes = append(c.Processes, results.Process{Index: p, Status: results.Done, Blocks: 5})
	}
	var steps [][]float64
	for _, m := range s.modes {
		k := results.DefaultConfigurationKey()
		k.Mode, k.Sync, _ = cutMode(m)
		for _, d := range s.dispatch {
			if d > 0 && m != "eager/event" {
				continue
			}
			k.DispatchNs = d
			conf, step := s.configuration(noise, k, batch, gpus)
			c.Configurations, steps = append(c.Configurations, conf), append(steps, step)
		}
	}
	for i := 1; i < len(c.Configurations); i++ {
		c.Ratios = append(c.Ratios, ratio(c.Configurations[0].Key, c.Configurations[i].Key, steps[0], steps[i]))
	}
	last := len(c.Configurations) - 1
	for i := 1; i < last; i++ {
		if c.Configurations[i].Key.DispatchNs > 0 {
			c.Ratios = append(c.Ratios, ratio(c.Configurations[i].Key, c.Configurations[last].Key, steps[i], steps[last]))
		}
	}
	if s.cpu {
		c.Headline.Withheld = "a CPU has no launch overhead"
	} else if last > 0 {
		r := ratio(c.Configurations[0].Key, c.Configurations[last].Key, steps[0], steps[last])
		c.Headline = results.Headline{Ratio: &r}
		if at := slices.Index(s.modes, "eager/host"); len(s.modes) == 5 && len(s.dispatch) == 1 && at == 1 {
			c.Headline.Split = split(c.Configurations, steps)
		} else {
			c.Headline.SplitWithheld = "eager/host was not run"
		}
	}
	return c
}

func cutMode(s string) (mode, sync string, ok bool) {
	for i := range s {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// configuration draws each process's figures around the model's.
func (s sweep) configuration(noise *rand.Rand, k results.ConfigurationKey, batch, gpus int) (results.Configuration, []float64) {
	t := timesOf(k, batch, gpus)
	if s.cpu {
		t = times{2.1e6 * float64(batch) * (1 + 0.004*noise.Float64()), t.submit / 20, 400, 9e3}
		k.Launcher = "go"
	}
	c := results.Configuration{Key: k}
	spread := func(v, share float64) []float64 {
		out := make([]float64, s.processes)
		for i := range out {
			out[i] = math.Round(v * math.Exp(share*noise.NormFloat64()))
		}
		return out
	}
	step := spread(t.step, 0.005)
	add := func(name string, values []float64) {
		samples := make([]results.Sample, len(values))
		for p, v := range values {
			samples[p] = results.Sample{Process: p, Value: v}
		}
		m := results.NewMetric(name, samples)
		m.Summary = summary(values)
		c.Metrics = append(c.Metrics, m)
	}
	add(results.StepTimeNs, step)
	add(results.SubmitTimeNs, spread(t.submit, 0.04))
	add(results.SyncWaitNs, spread(t.wait, 0.02))
	add(results.HostTimeNs, spread(t.host, 0.03))
	rates := make([]float64, len(step))
	for i, v := range step {
		rates[i] = float64(batch*gpus) / v * 1e9
	}
	add(results.ImagesPerS, rates)
	// A source of its own keeps the figures above as they are.
	prepNoise := rand.New(rand.NewPCG(s.seed, uint64(batch*100+gpus*10+len(k.Mode+k.Sync))))
	sums := make([]float64, s.processes)
	phase := func(name string, ms float64) {
		p := results.Phase{Phase: name}
		values := make([]float64, s.processes)
		for i := range values {
			values[i] = math.Round(ms * 1e6 * math.Exp(0.06*prepNoise.NormFloat64()))
			sums[i] += values[i]
			p.Processes = append(p.Processes, int64(values[i]))
		}
		p.Ns = int64(results.Median(values))
		c.Prepare = append(c.Prepare, p)
	}
	phase("prepare_operators", 310)
	launches := int64(480)
	if k.Mode != "eager" {
		scale := 1.0
		if k.Mode == "step" {
			launches, scale = 2, 0.8
		} else {
			launches = 22
		}
		for _, p := range []struct {
			name string
			ms   float64
		}{{"deduplicate", 0}, {"warm_up", 96}, {"capture", 61}, {"instantiate", 44}, {"upload", 12}, {"first_replay", 9 + 0.5*float64(batch)}} {
			phase(p.name, p.ms*scale)
		}
		c.Captures = results.Captures{Captures: launches * int64(gpus), Replays: 4000}
	}
	add(results.PrepareNs, sums)
	c.Counts.Launches.Host = results.Count(launches)
	return c, step
}

func summary(values []float64) *results.Summary {
	s := &results.Summary{Median: results.Median(values), Processes: values, N: len(values),
		P10: slices.Min(values), P90: slices.Max(values), P99: slices.Max(values), Max: slices.Max(values)}
	if n := len(values); n > 1 {
		s.Interval = &results.Interval{Low: slices.Min(values), High: slices.Max(values), Level: 0.95,
			Coverage: 1 - math.Pow(0.5, float64(n-1)), Method: "order"}
	}
	return s
}

func ratio(base, other results.ConfigurationKey, b, o []float64) results.Ratio {
	logs := make([]float64, len(b))
	for i := range b {
		logs[i] = math.Log(b[i] / o[i])
	}
	return ratioOf(base, other, logs)
}

func ratioOf(base, other results.ConfigurationKey, logs []float64) results.Ratio {
	r := results.Ratio{Metric: results.StepTimeNs, Base: base, Other: other, Logs: logs}
	mean := 0.0
	for _, l := range logs {
		mean += l / float64(len(logs))
	}
	r.Value = math.Exp(mean)
	if n := len(logs); n > 1 {
		var sum float64
		for _, l := range logs {
			sum += (l - mean) * (l - mean)
		}
		t := map[int]float64{2: 12.706, 3: 4.303, 8: 2.365}[n]
		half := t * math.Sqrt(sum/float64(n-1)/float64(n))
		r.Interval = &results.Interval{Low: math.Exp(mean - half), High: math.Exp(mean + half), Level: 0.95, Coverage: 0.95, Method: "t"}
	}
	return r
}

// split is over the corners eager and graph, host and event.
func split(cs []results.Configuration, steps [][]float64) *results.Split {
	n := len(steps[0])
	total, joins, launches, inter := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for p := range n {
		ee, eh, ge, gh := math.Log(steps[0][p]), math.Log(steps[1][p]), math.Log(steps[2][p]), math.Log(steps[3][p])
		total[p] = eh - ge
		joins[p] = (eh - ee + gh - ge) / 2
		launches[p] = (eh - gh + ee - ge) / 2
		inter[p] = (eh - ee) - (gh - ge)
	}
	b, o := cs[1].Key, cs[2].Key
	return &results.Split{Total: ratioOf(b, o, total), Joins: ratioOf(b, o, joins), Launches: ratioOf(b, o, launches), Interaction: ratioOf(b, o, inter)}
}

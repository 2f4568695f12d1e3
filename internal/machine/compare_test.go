package machine

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

func environment(fields ...results.EnvironmentField) results.Environment {
	return results.Environment{Fields: fields}
}

func field(name, role, value string) results.EnvironmentField {
	f := results.EnvironmentField{Name: name, Role: role, Value: value}
	if value == "" {
		f.Why = "not readable"
	}
	return f
}

func TestDifferences(t *testing.T) {
	const s, bed = results.Subject, results.Bed
	for name, c := range map[string]struct {
		a, b           results.Environment
		subjects, beds []Difference
	}{
		"the same": {
			a: environment(field("x", s, "1"), field("y", bed, "2")),
			b: environment(field("y", bed, "2"), field("x", s, "1")),
		},
		"both unknown": {
			a: environment(field("x", bed, "")), b: environment(field("x", bed, "")),
		},
		"by role": {
			a:        environment(field("x", s, "1"), field("y", bed, "2")),
			b:        environment(field("x", s, "3"), field("y", bed, "4")),
			subjects: []Difference{{Name: "x", A: "1", B: "3"}},
			beds:     []Difference{{Name: "y", A: "2", B: "4"}},
		},
		"roles that differ": {
			a: environment(field("x", s, "1")), b: environment(field("x", bed, "2")),
			beds: []Difference{{Name: "x", A: "1", B: "2"}},
		},
		"one unknown": {
			a: environment(field("x", s, "1")), b: environment(field("x", s, "")),
			subjects: []Difference{{Name: "x", A: "1", WhyB: "not readable"}},
		},
		"a field of one side": {
			a: environment(field("x", s, "1"), field("y", bed, "2")), b: environment(field("y", bed, "2"), field("z", bed, "3")),
			subjects: []Difference{{Name: "x", A: "1", WhyB: "the record has no such field"}},
			beds:     []Difference{{Name: "z", B: "3", WhyA: "the record has no such field"}},
		},
		"a variable of one side": {
			a: environment(field("env.A", bed, "1"), field("y", bed, "2")), b: environment(field("y", bed, "2")),
			beds: []Difference{{Name: "env.A", A: "1", B: "(not set)"}},
		},
		"no environment": {
			a: environment(field("env.A", bed, "1"), field("x", s, "2")), b: environment(),
			subjects: []Difference{{Name: "x", A: "2", WhyB: "the record has no environment"}},
			beds:     []Difference{{Name: "env.A", A: "1", WhyB: "the record has no environment"}},
		},
		"memory, almost": {
			a: environment(field("memory.total_bytes", bed, "1000000")), b: environment(field("memory.total_bytes", bed, "1015000")),
		},
		"memory, not quite": {
			a: environment(field("memory.total_bytes", bed, "1000000")), b: environment(field("memory.total_bytes", bed, "1030000")),
			beds: []Difference{{Name: "memory.total_bytes", A: "1000000", B: "1030000"}},
		},
		"memory, unlimited": {
			a: environment(field("cgroup.memory_bytes", bed, none)), b: environment(field("cgroup.memory_bytes", bed, "5")),
			beds: []Difference{{Name: "cgroup.memory_bytes", A: none, B: "5"}},
		},
	} {
		subjects, beds := Differences(c.a, c.b)
		if !reflect.DeepEqual(subjects, c.subjects) || !reflect.DeepEqual(beds, c.beds) {
			t.Errorf("%s: subjects %+v, beds %+v", name, subjects, beds)
		}
		for _, d := range slices.Concat(subjects, beds) {
			if d.Unknown() != (d.WhyA != "" || d.WhyB != "") {
				t.Errorf("%s: %+v is unknown: %v", name, d, d.Unknown())
			}
		}
	}
}

// A machine equals itself; another one differs in its bed.
func TestDifferencesOfMachines(t *testing.T) {
	read := func(name string) results.Environment {
		return Read(context.Background(), recorded(t, filepath.Join("testdata", name+".txtar")))
	}
	server := read("server-2socket")
	if s, b := Differences(server, read("server-2socket")); len(s)+len(b) != 0 {
		t.Errorf("a machine differs from itself: %v %v", s, b)
	}
	_, beds := Differences(server, read("container-quota"))
	if !slices.ContainsFunc(beds, func(d Difference) bool { return d.Name == CPUModel && !d.Unknown() }) {
		t.Errorf("the model of the CPU is not among %v", beds)
	}
}

func TestDoubts(t *testing.T) {
	const bed = results.Bed
	with := func(fields ...results.EnvironmentField) results.Environment { return environment(fields...) }
	reading := func(name string, v float64, fields ...results.EnvironmentField) results.Environment {
		e := environment(fields...)
		e.Readings = []results.Reading{{Name: name, Value: v, N: 1}}
		return e
	}
	calibrated := func(name string, v float64) results.Environment {
		return results.Environment{Calibration: []results.Reading{{Name: name, Value: v, N: 1}}}
	}
	for name, c := range map[string]struct {
		env  results.Environment
		want string // the code; empty for none
	}{
		"dirty":                  {with(field(ProgramDirty, results.Subject, "true")), "program_dirty"},
		"clean":                  {with(field(ProgramDirty, results.Subject, "false")), ""},
		"race":                   {with(field(GoRace, results.Subject, on)), "race_detector"},
		"governor":               {with(field(CPUGovernor, bed, "powersave")), "governor"},
		"governor, good":         {with(field(CPUGovernor, bed, "performance")), ""},
		"governor, by hint":      {with(field(CPUGovernor, bed, "powersave"), field(CPUEnergyPreference, bed, "performance")), ""},
		"governor, unknown":      {with(field(CPUGovernor, bed, "")), ""},
		"boost":                  {with(field(CPUBoost, bed, on)), "boost"},
		"no boost":               {with(field(CPUBoost, bed, off)), ""},
		"battery":                {with(field(MachinePower, bed, "battery")), "battery"},
		"mains":                  {with(field(MachinePower, bed, "mains")), ""},
		"hot":                    {reading("temperature.k10temp", 90), "hot"},
		"warm":                   {reading("temperature.k10temp", 89.9), ""},
		"load":                   {reading(Load1, 2.1, field(CPUCores, bed, "4")), "load"},
		"load, half":             {reading(Load1, 2, field(CPUCores, bed, "4")), ""},
		"load, threads only":     {reading(Load1, 3, field(CPUThreads, bed, "4")), "load"},
		"load, cores unknown":    {reading(Load1, 3), ""},
		"virtual":                {with(field(MachineVirtual, bed, present)), "virtual_machine"},
		"not virtual":            {with(field(MachineVirtual, bed, none)), ""},
		"quota":                  {with(field(CgroupCPUs, bed, "1.5"), field(CPUUsable, bed, "2")), "cpu_quota"},
		"quota, enough":          {with(field(CgroupCPUs, bed, "2"), field(CPUUsable, bed, "2")), ""},
		"no quota":               {with(field(CgroupCPUs, bed, none), field(CPUUsable, bed, "2")), ""},
		"memory":                 {reading(MemoryAvailable, 9, field(MemoryTotalBytes, bed, "100")), "memory_low"},
		"memory, enough":         {reading(MemoryAvailable, 10, field(MemoryTotalBytes, bed, "100")), ""},
		"launch blocking":        {with(field("env.CUDA_LAUNCH_BLOCKING", bed, "1")), "launch_blocking"},
		"launch blocking, 0":     {with(field("env.CUDA_LAUNCH_BLOCKING", bed, "0")), ""},
		"launch blocking, empty": {with(field("env.CUDA_LAUNCH_BLOCKING", bed, "(empty)")), ""},
		"injected":               {with(field("env.LD_PRELOAD", bed, hidden)), "injected"},
		"nccl":                   {with(field("env.NCCL_DEBUG", bed, "info")), "nccl_debug"},
		"nccl, quiet":            {with(field("env.NCCL_DEBUG", bed, "WARN")), ""},
		"cudnn":                  {with(field("env.CUDNN_LOGLEVEL_DBG", bed, "3")), "cudnn_log"},
		"persistence":            {with(field(GPUPersistence, bed, off)), "gpu_persistence"},
		"mig":                    {with(field(GPUMIG, bed, on)), "gpu_mig"},
		"coarse clock":           {calibrated(ClockStepNs, 15e6), "clock_coarse"},
		"fine clock":             {calibrated(ClockStepNs, 10), ""},
		"slow clock":             {calibrated(ClockReadNs, 900), "clock_slow"},
		"fast clock":             {calibrated(ClockReadNs, 25), ""},
		"clock back":             {calibrated(ClockBackwards, 1), "clock_backwards"},
		"interrupted":            {calibrated(PauseShare, .3), "interrupted"},
		"hardly interrupted":     {calibrated(PauseShare, .001), ""},
	} {
		got := Doubts(c.env)
		var codes []string
		for _, w := range got {
			codes = append(codes, w.Code)
			if strings.Contains(w.Text, "%!") || strings.Contains(w.Text, "\n") {
				t.Errorf("%s: %q", name, w.Text)
			}
			if !strings.ContainsAny(w.Text, ";") || strings.HasSuffix(w.Text, ".") {
				t.Errorf("%s: %q is not a doubt with advice", name, w.Text)
			}
		}
		if strings.Join(codes, " ") != c.want {
			t.Errorf("%s: doubts %q, want %q", name, codes, c.want)
		}
	}
}

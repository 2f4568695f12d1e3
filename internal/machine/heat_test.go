package machine

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tech-renaissance/trbench/results"
)

func moment(session int, when string, readings ...any) results.Moment {
	return results.Moment{Session: session, When: when, Readings: readingsOf(readings...)}
}

// readingsOf takes names and values in turn.
func readingsOf(list ...any) []results.Reading {
	var out []results.Reading
	for i := 0; i < len(list); i += 2 {
		out = append(out, results.Reading{Name: list[i].(string), Value: list[i+1].(float64), N: 1})
	}
	return out
}

// wantDoubts compares warnings, each a code and words that its text has.
func wantDoubts(t *testing.T, got []results.Warning, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d warnings, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range got {
		code, words, _ := strings.Cut(want[i], ": ")
		if w.Code != code || !strings.Contains(w.Text, words) {
			t.Errorf("%+v, want %s", w, want[i])
		}
		if !strings.Contains(w.Text, ";") || strings.Contains(w.Text, "%!") || strings.HasSuffix(w.Text, ".") {
			t.Errorf("%q is not a doubt with advice", w.Text)
		}
	}
}

func TestHeat(t *testing.T) {
	const start, end = results.AtStart, results.AtEnd
	for name, c := range map[string]struct {
		moments []results.Moment
		want    []string
	}{
		"nothing": {},
		"cool":    {moments: []results.Moment{moment(0, start, GPUTemperature, 40.), moment(0, end, GPUTemperature, 84.9, TemperaturePrefix+"coretemp", 89.9)}},
		"hot GPU at the end": {moments: []results.Moment{moment(0, start), moment(0, end, GPUTemperature, 85.)},
			want: []string{"heat: gpu was at 85 degrees Celsius at the end of the run"}},
		"hot CPU at the end": {moments: []results.Moment{moment(0, start), moment(0, end, TemperaturePrefix+"coretemp", 90.)},
			want: []string{"heat: coretemp was at 90 degrees"}},
		"hot at the first start, which the environment has": {moments: []results.Moment{moment(0, start, GPUTemperature, 95.), moment(0, end)}},
		"hot at another start": {moments: []results.Moment{moment(0, start), moment(0, end), moment(1, start, GPUTemperature, 95.), moment(1, end)},
			want: []string{"heat: at the start of session 2"}},
		"held by heat": {moments: []results.Moment{moment(0, start), moment(0, end, GPUHeldPrefix+"hw_thermal_slowdown", 2.)},
			want: []string{"gpu_throttled_at_rest: hw_thermal_slowdown held the clocks of 2 GPUs down at the end of the run"}},
		"held by the supply from the start": {moments: []results.Moment{moment(0, start, GPUHeldPrefix+"hw_power_brake", 1.)},
			want: []string{"gpu_throttled_at_rest: hw_power_brake held the clocks of 1 GPU down at the start of the run"}},
		"held in a later session": {moments: []results.Moment{moment(0, start), moment(0, end), moment(1, start), moment(1, end, GPUHeldPrefix+"hw_slowdown", 1.)},
			want: []string{"gpu_throttled_at_rest: at the end of session 2"}},
		"the power limit says nothing at rest": {moments: []results.Moment{moment(0, start), moment(0, end, GPUHeldPrefix+"sw_power_cap", 1.)}},
		"none held":                            {moments: []results.Moment{moment(0, start), moment(0, end, GPUHeldPrefix+"hw_slowdown", 0.)}},
		// 5 in the first session, 2 in the second; what rose between them, and
		// before, is not the run's.
		"CPU throttled": {moments: []results.Moment{moment(0, start, CPUThrottles, 100.), moment(0, end, CPUThrottles, 105.),
			moment(1, start, CPUThrottles, 150.), moment(1, end, CPUThrottles, 152.)},
			want: []string{"cpu_throttled: held the CPU's clock down 7 times during the run"}},
		"CPU throttled between sessions": {moments: []results.Moment{moment(0, start, CPUThrottles, 1.), moment(0, end, CPUThrottles, 1.),
			moment(1, start, CPUThrottles, 9.), moment(1, end, CPUThrottles, 9.)}},
		"restarted in between": {moments: []results.Moment{moment(0, start, CPUThrottles, 100.), moment(1, start, CPUThrottles, 0.), moment(1, end, CPUThrottles, 0.)}},
		"counted at one end":   {moments: []results.Moment{moment(0, start), moment(0, end, CPUThrottles, 7.)}},
		"a clock at rest says nothing": {moments: []results.Moment{moment(0, start, GPUClockHz, 345e6, CPUFrequencyHz, 8e8),
			moment(0, end, GPUClockHz, 1980e6, CPUFrequencyHz, 3e9)}},
	} {
		t.Run(name, func(t *testing.T) { wantDoubts(t, Heat(c.moments), c.want...) })
	}
}

func TestUnderLoad(t *testing.T) {
	done := func(readings ...any) results.Process {
		return results.Process{Status: results.Done, Readings: readingsOf(readings...)}
	}
	failed := func(readings ...any) results.Process {
		return results.Process{Status: results.Failed, Readings: readingsOf(readings...)}
	}
	for name, c := range map[string]struct {
		processes []results.Process
		want      []string
	}{
		"nothing":    {},
		"unread":     {processes: []results.Process{done(), done()}},
		"unhampered": {processes: []results.Process{done(GPUClockHz, 1980e6, CPUFrequencyHz, 3e9), done(GPUClockHz, 1980e6, CPUFrequencyHz, 3e9)}},
		"two reasons": {processes: []results.Process{done(GPUHeldPrefix+"hw_thermal_slowdown", 1., GPUHeldPrefix+"sw_thermal_slowdown", 1.),
			done(GPUHeldPrefix+"sw_thermal_slowdown", 2.), done(GPUClockHz, 1980e6)},
			want: []string{"gpu_throttled: held down under load: by hw_thermal_slowdown in 1 of 3 processes, by sw_thermal_slowdown in 2 of 3 processes; let it cool down, and look at its fans and the air around it"}},
		"power cap":      {processes: []results.Process{done(GPUHeldPrefix+"sw_power_cap", 1.)}, want: []string{"gpu_throttled: by sw_power_cap in 1 of 1 processes; it reaches its power limit"}},
		"power brake":    {processes: []results.Process{done(GPUHeldPrefix+"hw_power_brake", 1.)}, want: []string{"gpu_throttled: the power supply"}},
		"slowdown":       {processes: []results.Process{done(GPUHeldPrefix+"hw_slowdown", 1.)}, want: []string{"gpu_throttled: by hw_slowdown in 1"}},
		"a chosen clock": {processes: []results.Process{done(GPUHeldPrefix+"applications_clocks", 1., GPUHeldPrefix+"gpu_idle", 1.)}},
		// 1 - 1920.6/1980 is 3.0 %, 1 - 1920.7/1980 just below.
		"GPU's clock moved":     {processes: []results.Process{done(GPUClockHz, 1920.6e6), done(GPUClockHz, 1980e6)}, want: []string{"gpu_clock_moved: the GPU's clock under load lay between 1921 and 1980 MHz in 2 processes"}},
		"GPU's clock stayed":    {processes: []results.Process{done(GPUClockHz, 1980e6), done(GPUClockHz, 1920.7e6)}},
		"CPU's clock moved":     {processes: []results.Process{done(CPUFrequencyHz, 3e9), done(CPUFrequencyHz, 2.69e9)}, want: []string{"cpu_clock_moved: between 2690 and 3000 MHz"}},
		"CPU's clock stayed":    {processes: []results.Process{done(CPUFrequencyHz, 3e9), done(CPUFrequencyHz, 2.71e9)}},
		"one clock":             {processes: []results.Process{done(GPUClockHz, 1980e6), done(GPUClockHz, 0.)}},
		"failed ones count not": {processes: []results.Process{failed(GPUHeldPrefix+"hw_slowdown", 1., GPUClockHz, 1e9), done(GPUClockHz, 1980e6)}},
	} {
		t.Run(name, func(t *testing.T) { wantDoubts(t, UnderLoad(c.processes), c.want...) })
	}
	all := map[string]bool{}
	for _, code := range append(HeatCodes(), LoadCodes()...) {
		all[code] = true
	}
	if len(all) != 8 {
		t.Errorf("codes %v", all)
	}
}

// What changes is read without the rest.
func TestNow(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/loadavg": file("1.50 0.75 0.10 1/100 7\n"),
		"proc/cpuinfo": file("processor : 0\nmodel name : A\ncpu MHz : 1000.0\n\nprocessor : 2\nmodel name : A\ncpu MHz : 2000.0\n\nprocessor : 1\nmodel name : A\ncpu MHz : 3000.0\n"),
		"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count":    file("3\n"),
		"sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": file("4\n"),
		"sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count":    file("5\n"),
		"sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count": file("none\n"),
		"sys/devices/system/cpu/cpufreq/policy0/thermal_throttle":             file("9\n"),
		"sys/class/hwmon/hwmon0/name":                                         file("coretemp\n"),
		"sys/class/hwmon/hwmon0/temp1_input":                                  file("61000\n"),
	}
	want := map[string]float64{Load1: 1.5, Load5: .75, CPUFrequencyHz: 2e9, CPUFrequencyMinHz: 1e9, CPUFrequencyMaxHz: 3e9,
		CPUThrottles: 12, TemperaturePrefix + "coretemp": 61, "gpu.temperature": 35}
	got := Now(context.Background(), Sources{Root: root, GPU: fakeGPU{}})
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, r := range got {
		if want[r.Name] != r.Value {
			t.Errorf("%s is %v, want %v", r.Name, r.Value, want[r.Name])
		}
	}
	root["sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq"] = file("2500000\n")
	if v, _ := find(Now(context.Background(), Sources{Root: root}), CPUFrequencyHz); v != 2.5e9 {
		t.Errorf("the policy's clock is %v", v)
	}
	if got := Now(context.Background(), Sources{}); len(got) != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestAfterBlocks(t *testing.T) {
	conf := func(mode string, spreads ...results.Spread) results.Configuration {
		k := results.DefaultConfigurationKey()
		k.Mode = mode
		return results.Configuration{Key: k, Machine: spreads}
	}
	clock := func(low, high float64) results.Spread {
		return results.Spread{Name: GPUClockHz, Min: low, Median: high, Max: high}
	}
	held := func(reason string, most float64) results.Spread {
		return results.Spread{Name: GPUHeldPrefix + reason, Max: most}
	}
	for name, c := range map[string]struct {
		all  []results.Configuration
		want []string
	}{
		"nothing read": {all: []results.Configuration{conf("eager")}},
		"steady":       {all: []results.Configuration{conf("eager", clock(1980e6, 1980e6)), conf("graph", clock(1921e6, 1980e6))}},
		// 1920 is 3.03 % below 1980, in another configuration.
		"moved": {all: []results.Configuration{conf("eager", clock(1980e6, 1980e6)), conf("graph", clock(1920e6, 1950e6))},
			want: []string{"gpu_clock_moved_in_blocks: the GPU's clock lay between 1920 and 1980 MHz after blocks"}},
		"a chosen clock": {all: []results.Configuration{conf("eager", held("applications_clocks", 1), held("gpu_idle", 1), held("sw_power_cap", 0))}},
		"held": {all: []results.Configuration{conf("eager", held("sw_power_cap", 1)), conf("graph", held("sw_power_cap", 1), held("hw_thermal_slowdown", 1))},
			want: []string{"gpu_throttled_in_blocks: the GPU's clocks were held down by sw_power_cap after blocks of eager/event/device, sw_power_cap after blocks of graph/event/device, hw_thermal_slowdown after blocks of graph/event/device; it reaches its power limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := AfterBlocks(c.all)
			if len(got) != len(c.want) {
				t.Fatalf("%+v, want %q", got, c.want)
			}
			for i, w := range got {
				if text := w.Code + ": " + w.Text; !strings.HasPrefix(text, c.want[i]) {
					t.Errorf("%s, want %s", text, c.want[i])
				}
			}
		})
	}
}

package gpuinfo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/cuda/nvml"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// sources starts a machine and its management.
func sources(t *testing.T, m *fake.Machine, g *fake.Management) Sources {
	t.Helper()
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	api, err := driver.New(r)
	if err != nil {
		t.Fatal(err)
	}
	s := Sources{Driver: api, NoNVML: errors.New("NVML could not be opened")}
	if g == nil {
		return s
	}
	n, err := g.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	if s.NVML, s.NoNVML = nvml.New(n); s.NoNVML != nil {
		s.NVML = nil
	}
	return s
}

// environment is what package machine makes of it.
func environment(i *Info) results.Environment {
	return machine.Read(context.Background(), machine.Sources{GPU: i})
}

func wantFields(t *testing.T, e results.Environment, want map[string]string) {
	t.Helper()
	for name, value := range want {
		f, ok := e.Field(name)
		if why, absent := strings.CutPrefix(value, "absent: "); absent {
			if !ok || f.Value != "" || !strings.Contains(f.Why, why) {
				t.Errorf("%s: %+v, want absent: %s", name, f, why)
			}
			continue
		}
		if !ok || f.Value != value || f.Why != "" {
			t.Errorf("%s: %+v, want %q", name, f, value)
		}
	}
}

func wantReadings(t *testing.T, e results.Environment, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		found := false
		for _, r := range e.Readings {
			if r.Name == name {
				found = true
				if r.Value != value {
					t.Errorf("%s = %v, want %v", name, r.Value, value)
				}
			}
		}
		if !found {
			t.Errorf("no reading %s", name)
		}
	}
}

func TestServer(t *testing.T) {
	m := fake.H200(2)
	g := m.NVML()
	g.GPUs[1].Temperature, g.GPUs[1].Power, g.GPUs[1].Reasons = 71, 650_500, uint64(nvml.SWPowerCap)
	g.GPUs[1].SMClock, g.GPUs[1].UtilisationGPU = 1555, 100
	s := sources(t, m, g)
	s.Home = "/home/somebody"
	s.Libraries = []Library{
		{Name: "cudnn", Version: "9.19.0", Files: []File{
			{"libcudnn", "/home/somebody/venv/nvidia/cudnn/lib/libcudnn.so.9", ""},
			{"libcudnn_adv", "", "/home/somebody/venv/nvidia/cudnn/lib/libcudnn_adv.so.9: file too short"},
		}},
		CuBLAS(nil, errors.New("cuBLASLt was not found")),
	}
	e := environment(Read(s))
	wantFields(t, e, map[string]string{
		"driver.version": "580.65.06", "cuda.version": "13.0", "cudnn.version": "9.19.0", "cublas.version": "absent: cuBLASLt was not found",
		"gpu.name": "NVIDIA H200", "gpu.count": "2", "gpu.memory_bytes": "150754820096", "gpu.clock_limit_hz": "1980000000",
		"gpu.memory_clock_limit_hz": "3201000000", "gpu.power_limit_w": "700", "gpu.mig": "off", "gpu.ecc": "on", "gpu.persistence": "on",
		"gpu.compute_capability": "9.0", "gpu.multiprocessors": "132",
		"file.driver.libcuda": "absent: no file was opened", "file.nvml.libnvidia-ml": "absent: no file was opened",
		"file.cudnn.libcudnn":     "~/venv/nvidia/cudnn/lib/libcudnn.so.9",
		"file.cudnn.libcudnn_adv": "absent: ~/venv/nvidia/cudnn/lib/libcudnn_adv.so.9: file too short",
	})
	wantReadings(t, e, map[string]float64{
		SMClockHz: 950e6, MemoryClockHz: 3201e6, PowerW: 650.5, Temperature: 71, Busy: 1, MemoryUsed: 0, Throttled: 1,
	})
	for _, f := range e.Fields {
		if strings.Contains(f.Value+f.Why, "somebody") {
			t.Errorf("%s names the user: %+v", f.Name, f)
		}
		if role := f.Role; strings.HasPrefix(f.Name, FilePrefix) && role != results.Subject {
			t.Errorf("%s is of role %s", f.Name, role)
		}
	}
}

// Now says what holds which GPUs down, each reason by itself, and leaves the
// rest out. Idleness and chosen clocks hold nothing down.
func TestNow(t *testing.T) {
	m := fake.H200(3)
	g := m.NVML()
	g.GPUs[0].Reasons = uint64(nvml.GPUIdle | nvml.ApplicationsClocks | nvml.SyncBoost | nvml.DisplayClock)
	g.GPUs[1].Reasons = uint64(nvml.HWSlowdown | nvml.HWThermalSlowdown)
	g.GPUs[2].Reasons, g.GPUs[2].Temperature, g.GPUs[2].SMClock = uint64(nvml.HWThermalSlowdown|nvml.HWPowerBrake), 91, 1410
	s := sources(t, m, g)
	i := Now(s)
	if len(i.Fields()) != 0 {
		t.Errorf("fields %+v", i.Fields())
	}
	got := map[string]results.Reading{}
	for _, r := range i.Readings() {
		got[r.Name] = r
	}
	for name, want := range map[string]float64{
		SMClockHz: 345e6, Temperature: 91, Throttled: 2,
		machine.GPUHeldPrefix + "hw_thermal_slowdown": 2, machine.GPUHeldPrefix + "hw_slowdown": 1, machine.GPUHeldPrefix + "hw_power_brake": 1,
	} {
		if r := got[name]; r.Value != want || r.N != 3 {
			t.Errorf("%s: %+v, want %v of 3", name, r, want)
		}
	}
	if len(got) != 10 { // and memory clock, power, busy and memory used
		t.Errorf("%d readings: %+v", len(got), got)
	}
	// Each of NVML's names that holds a GPU down has advice.
	for _, r := range []nvml.Reasons{nvml.SWPowerCap, nvml.HWSlowdown, nvml.SWThermalSlowdown, nvml.HWThermalSlowdown, nvml.HWPowerBrake} {
		g.GPUs[0].Reasons, g.GPUs[1].Reasons, g.GPUs[2].Reasons = uint64(r), 0, 0
		w := machine.UnderLoad([]results.Process{{Status: results.Done, Readings: Now(s).Readings()}})
		if len(w) != 1 || !strings.Contains(w[0].Text, "by "+r.String()+" in 1 of 1") {
			t.Errorf("%s: %+v", r, w)
		}
	}
	g.Codes = map[string]uint32{"nvmlDeviceGetCurrentClocksEventReasons": 3, "nvmlDeviceGetCurrentClocksThrottleReasons": 3}
	for _, r := range Now(s).Readings() {
		if r.Name == Throttled || strings.HasPrefix(r.Name, machine.GPUHeldPrefix) {
			t.Errorf("where NVML does not say: %+v", r)
		}
	}
	if got := Now(Sources{Driver: s.Driver, NoNVML: errors.New("no NVML")}).Readings(); len(got) != 0 {
		t.Errorf("without NVML: %+v", got)
	}
	m.Fail(fake.Fault{Call: "cuDeviceGetCount", Code: 999})
	if got := Now(s).Readings(); len(got) != 0 {
		t.Errorf("without a count: %+v", got)
	}
}

func TestDifferentGPUs(t *testing.T) {
	m := fake.H200(2)
	m.GPUs[1].Name = "NVIDIA H100"
	g := m.NVML()
	g.GPUs[1].PowerLimit = 350_500
	g.Codes = map[string]uint32{"nvmlDeviceGetMigMode": 3}
	e := environment(Read(sources(t, m, g)))
	wantFields(t, e, map[string]string{
		"gpu.name": "NVIDIA H100, NVIDIA H200", "gpu.power_limit_w": "350.5, 700", "gpu.mig": "absent: this GPU does not give it",
		"gpu.memory_bytes": "150754820096",
	})
}

func TestWithoutNVML(t *testing.T) {
	e := environment(Read(sources(t, fake.A100(1), nil)))
	wantFields(t, e, map[string]string{
		"driver.version": "absent: NVML could not be opened", "cuda.version": "12.2", "gpu.name": "NVIDIA A100-SXM4-80GB", "gpu.count": "1",
		"gpu.clock_limit_hz": "absent: NVML could not be opened", "gpu.ecc": "absent: NVML could not be opened",
		"file.nvml.libnvidia-ml": "absent: NVML could not be opened", "gpu.compute_capability": "8.0",
	})
}

func TestFailingDriver(t *testing.T) {
	for call, want := range map[string]map[string]string{
		"cuDeviceGetCount":     {"gpu.count": "absent: cuDeviceGetCount", "gpu.name": "absent: cuDeviceGetCount"},
		"cuDeviceGet":          {"gpu.count": "1", "gpu.name": "absent: cuDeviceGet", "gpu.ecc": "absent: cuDeviceGet"},
		"cuDeviceGetName":      {"gpu.name": "absent: cuDeviceGetName", "gpu.memory_bytes": "150754820096"},
		"cuDeviceGetPCIBusId":  {"gpu.name": "NVIDIA H200", "gpu.ecc": "absent: cuDeviceGetPCIBusId"},
		"cuDeviceGetAttribute": {"gpu.compute_capability": "absent: cuDeviceGetAttribute"},
	} {
		t.Run(call, func(t *testing.T) {
			m := fake.H200(1)
			s := sources(t, m, m.NVML())
			m.Fail(fake.Fault{Call: call, Code: 999})
			wantFields(t, environment(Read(s)), want)
		})
	}
}

func TestStem(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/lib/libcudnn_ops.so.9": "libcudnn_ops", "libcublasLt.so.13.1.0.3": "libcublasLt", "odd": "odd",
	} {
		if got := stem(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

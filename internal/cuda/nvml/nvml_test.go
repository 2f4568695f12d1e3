package nvml_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/cuda/nvml"
)

func open(t *testing.T, g *fake.Management) (*nvml.API, error) {
	t.Helper()
	r, err := g.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return nvml.New(r)
}

func TestSnapshot(t *testing.T) {
	g := fake.H200(2).NVML()
	g.GPUs[1].SMClock = 1500
	g.GPUs[1].Reasons = uint64(nvml.SWPowerCap | nvml.HWThermalSlowdown | 1<<20)
	g.GPUs[1].UtilisationGPU, g.GPUs[1].UtilisationMem = 97, 40
	g.Codes = map[string]uint32{"nvmlDeviceGetMigMode": 3, "nvmlDeviceGetPowerUsage": 4}
	g.Absent = []string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetPersistenceMode"}
	a, err := open(t, g)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := a.Count(); n != 2 || err != nil {
		t.Errorf("%d GPUs, %v", n, err)
	}
	d, err := a.DeviceByPCI("0000:18:00.0")
	if err != nil {
		t.Fatal(err)
	}
	s := d.Snapshot()
	if s.Name.Value != "NVIDIA H200" || s.SMClockMHz.Value != 1500 || s.MaxSMClockMHz.Value != 1980 || s.MemClockMHz.Value != 3201 ||
		s.PowerLimitMilliwatts.Value != 700_000 || s.TemperatureC.Value != 30 || !s.ECC.Value || s.DriverVersion.Value != "580.65.06" ||
		s.Utilisation.Value != (nvml.Utilisation{GPU: 97, Memory: 40}) || s.Memory.Value.Total != 150_754_820_096 {
		t.Errorf("%+v", s)
	}
	if want := []string{"sw_power_cap", "hw_thermal_slowdown", "bit_20"}; !reflect.DeepEqual(s.Reasons.Value.Names(), want) || !s.Reasons.Value.Throttled() {
		t.Errorf("reasons %v", s.Reasons)
	}
	for name, f := range map[string]struct {
		absent, want string
	}{
		"MIG":         {s.MIG.Absent, "this GPU does not give it"},
		"power":       {s.PowerMilliwatts.Absent, "this user may not read it"},
		"persistence": {s.Persistence.Absent, "does not have the call"},
	} {
		if !strings.Contains(f.absent, f.want) {
			t.Errorf("%s: absent %q, want %q", name, f.absent, f.want)
		}
	}
	if s.MIG.OK() || !strings.HasPrefix(s.MIG.String(), "absent: ") {
		t.Error(s.MIG)
	}
	if _, err := a.DeviceByPCI("0000:99:00.0"); !errors.Is(err, nvml.NotFound) {
		t.Error(err)
	}
	if _, err := a.DeviceByIndex(2); !errors.Is(err, nvml.InvalidArgument) {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoModule(t *testing.T) {
	_, err := open(t, fake.Laptop().NVML())
	if !errors.Is(err, nvml.DriverNotLoaded) || !strings.Contains(err.Error(), "kernel module") {
		t.Error(err)
	}
}

func TestIdleIsNoThrottling(t *testing.T) {
	if r := nvml.GPUIdle | nvml.ApplicationsClocks; r.Throttled() || r.String() != "gpu_idle, applications_clocks" {
		t.Error(r)
	}
	if nvml.Reasons(0).String() != "none" {
		t.Error("no reason")
	}
}

// TestInstalled opens this machine's library, if it has one.
func TestInstalled(t *testing.T) {
	if _, err := nvml.Open(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	a, err := nvml.Open("")
	if err != nil {
		t.Skip(err)
	}
	defer a.Close()
	d, err := a.DeviceByIndex(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %+v", a.Path(), d.Snapshot())
}

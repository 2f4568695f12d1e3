package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// A record of a GPU says which, and what small things take on it; what cannot
// be had says why.
func TestMachineOfGPU(t *testing.T) {
	g := fakeGPU(t)
	e := readMachine(t.Context(), g.environment(), func() ([]results.Reading, error) {
		return []results.Reading{{Name: "launch.kernel_ns", Unit: "ns", Value: 2000, N: 9}}, nil
	})
	if f, ok := e.Field("gpu.name"); !ok || !strings.Contains(f.Value, "H200") {
		t.Errorf("the GPU is %+v", f)
	}
	if f, ok := e.Field("gpu.cudnn"); ok && f.Value != "" {
		t.Errorf("cuDNN is %+v", f)
	}
	if !slices.ContainsFunc(e.Calibration, func(r results.Reading) bool { return r.Name == "launch.kernel_ns" }) {
		t.Errorf("calibration %+v", e.Calibration)
	}
	e = readMachine(t.Context(), nil, func() ([]results.Reading, error) { return nil, errors.New("the GPU is busy") })
	if f, _ := e.Field("gpu.calibration"); f.Why != "the GPU is busy" {
		t.Errorf("a failed calibration says %+v", f)
	}
	e = readMachine(t.Context(), nil, nil)
	if _, ok := e.Field("gpu.calibration"); ok || len(e.Calibration) == 0 {
		t.Error("a CPU's record speaks of a GPU's calibration")
	}
	g = newGPU(func(string) string { return "" }, Libraries{})
	g.asked, g.missing = true, errors.New("no driver")
	if got := g.environment(); got != nil {
		t.Errorf("without a driver: %+v", got)
	}
	if _, err := g.calibrate(); err == nil {
		t.Error("calibrated without a driver")
	}
}

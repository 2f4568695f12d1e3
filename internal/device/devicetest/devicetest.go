// Package devicetest gives tests the devices to run on: the CPU always, a GPU
// where TRBENCH_GPU is set. The tests of the contract are then the same on
// both; scripts/gpu-test.sh carries them to a machine with a GPU.
//
// The package keeps one rule: TRBENCH_GPU set and no usable GPU is a failure,
// never a skip.
package devicetest

import (
	"os"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/device/cuda"
	"github.com/tech-renaissance/trbench/workloads"
)

// Kind is a way to make a device.
type Kind struct {
	Name string // "cpu", "cuda-builtin"
	New  func(t testing.TB, l workloads.Lowering) device.Device
}

// GPU says whether the tests run where a GPU is expected.
func GPU() bool { return os.Getenv("TRBENCH_GPU") != "" }

// All lists what this machine's tests run on. On a GPU machine the CPU device
// is left out: its tests have run elsewhere.
func All() []Kind {
	if GPU() {
		return []Kind{{"cuda-builtin", Builtin}, {"cuda-cudnn", CuDNN}}
	}
	return []Kind{{"cpu", CPU}}
}

// CPU makes the reference device.
func CPU(_ testing.TB, l workloads.Lowering) device.Device {
	return cpu.New(cpu.Options{Lowering: &l})
}

// Builtin makes a GPU with the project's own kernels.
func Builtin(t testing.TB, l workloads.Lowering) device.Device {
	t.Helper()
	return open(t, cuda.Options{Lowering: &l})
}

// CuDNN makes a GPU with cuDNN's and cuBLAS's plans, chosen by their
// heuristics, or by timing with TRBENCH_GPU=timed.
func CuDNN(t testing.TB, l workloads.Lowering) device.Device {
	t.Helper()
	d, err := cudnn.Open(cudnn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := cublas.Open(cublas.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, cuda.Options{Lowering: &l, CuDNN: d, CuBLAS: b, Heuristic: os.Getenv("TRBENCH_GPU") != "timed"})
}

func open(t testing.TB, o cuda.Options) device.Device {
	t.Helper()
	api, err := driver.Open(driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Driver = api
	o.Unfilled = os.Getenv("TRBENCH_UNFILLED") != ""
	if o.Tuning, err = cuda.ParseTuning(os.Getenv("TRBENCH_TUNING")); err != nil {
		t.Fatal(err)
	}
	d, err := cuda.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

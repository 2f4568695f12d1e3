package cli

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/gpuinfo"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda"
	"github.com/tech-renaissance/trbench/internal/device/cuda/calibrate"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Libraries are the files of the GPU's libraries; an empty one is searched for.
// Tuning is how the GPU runs a step, as [cuda.ParseTuning] reads it.
type Libraries struct{ Driver, CuDNN, CuBLAS, Tuning string }

// gpu opens what a machine with an NVIDIA GPU has, each library once and only
// when it is asked for. It is safe for concurrent use.
type gpu struct {
	getenv    func(string) string
	libraries Libraries

	mu      sync.Mutex
	asked   bool
	api     *driver.API
	missing error // why there is no driver to use
	dnn     *cudnn.Library
	blas    *cublas.Library
	noDNN   error
	noBLAS  error
	devices map[string]*cuda.Device
}

func newGPU(getenv func(string) string, l Libraries) *gpu {
	return &gpu{getenv: getenv, libraries: l, devices: map[string]*cuda.Device{}}
}

// ask opens driver and libraries. The caller holds mu.
func (g *gpu) ask() {
	if g.asked {
		return
	}
	g.asked = true
	if g.missing = driver.RefuseLaunchBlocking(g.getenv); g.missing != nil {
		return
	}
	if g.api, g.missing = driver.Open(driver.Options{Path: g.libraries.Driver}); g.missing != nil {
		return
	}
	if g.dnn, g.noDNN = cudnn.Open(cudnn.Options{Path: g.libraries.CuDNN}); g.noDNN != nil {
		g.dnn, g.noBLAS = nil, errors.New("it is used beside cuDNN only, which was not opened")
		return
	}
	if g.blas, g.noBLAS = cublas.Open(cublas.Options{Path: g.libraries.CuBLAS}); g.noBLAS != nil {
		g.blas = nil // fully connected layers then run on the project's own kernels
	}
}

// environment is what driver, NVML and libraries say of the GPUs; nil where
// there is no driver.
func (g *gpu) environment() machine.GPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil
	}
	return gpuinfo.Open(g.api, g.getenv("HOME"), gpuinfo.CuDNN(g.dnn, g.noDNN), gpuinfo.CuBLAS(g.blas, g.noBLAS))
}

// now is what NVML says of the GPUs at this moment; nil where there is no
// driver.
func (g *gpu) now() machine.GPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil
	}
	return gpuinfo.OpenNow(g.api)
}

// calibrate measures what small things take on the first GPU, in about
// [calibrate.Budget].
func (g *gpu) calibrate() ([]results.Reading, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil, g.missing
	}
	return calibrate.Run(g.api, 0)
}

// describe says what --device=cuda has, or why it cannot be used.
func (g *gpu) describe() Device {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask()
	d := Device{Name: "cuda", Kernels: []string{"builtin"}, Target: workloads.Target{Lowering: workloads.Fused}}
	if g.missing != nil {
		d.Missing = missing(g.missing)
		return d
	}
	n, err := g.api.DeviceGetCount()
	if err != nil || n == 0 {
		d.Missing = fmt.Sprintf("the CUDA driver sees no GPU (%v)", err)
		return d
	}
	first, err := g.api.DeviceGet(0)
	if err != nil {
		d.Missing = err.Error()
		return d
	}
	name, err := g.api.DeviceGetName(first)
	if err != nil {
		d.Missing = err.Error()
		return d
	}
	if total, err := g.api.DeviceTotalMem(first); err == nil {
		d.MemoryBytes = int64(total)
	}
	d.MaxRanks = min(n, 1) // see cuda.Device.MaxRanks
	d.Description = fmt.Sprintf("%s (%d visible), driver for CUDA %s", name, n, g.api.Version())
	if g.dnn != nil {
		d.Kernels = []string{"cudnn", "builtin"}
		d.Description += ", cuDNN " + cudnn.VersionString(g.dnn.Version())
	} else {
		d.KernelsHint = missing(g.noDNN)
	}
	return d
}

// missing is a library's absence in one sentence, with what to do.
func missing(err error) string {
	var u *driver.Unavailable
	if errors.As(err, &u) {
		return u.Reason.Error() + "; " + u.Advice
	}
	return err.Error()
}

// open returns the device with a kernel set, the same one each time.
func (g *gpu) open(kernels string) (device.Device, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask()
	if g.missing != nil {
		return nil, &bench.InputError{Name: "--device=cuda", Reason: "cannot be used: " + missing(g.missing)}
	}
	if d := g.devices[kernels]; d != nil {
		return d, nil
	}
	tuning, err := cuda.ParseTuning(g.libraries.Tuning)
	if err != nil {
		return nil, &bench.InputError{Name: "TRBENCH_TUNING", Reason: err.Error()}
	}
	o := cuda.Options{Driver: g.api, Tuning: tuning}
	if kernels == "cudnn" {
		if g.dnn == nil {
			return nil, &bench.InputError{Name: "--kernels=cudnn", Reason: "cannot be used: " + g.noDNN.Error()}
		}
		o.CuDNN, o.CuBLAS = g.dnn, g.blas
	}
	d, err := cuda.New(o)
	if err != nil {
		return nil, err
	}
	g.devices[kernels] = d
	return d, nil
}

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/gorgonia"
	"github.com/tech-renaissance/trbench/internal/cuda/gpuinfo"
	"github.com/tech-renaissance/trbench/internal/cuda/nvml"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda"
	"github.com/tech-renaissance/trbench/internal/device/cuda/calibrate"
	"github.com/tech-renaissance/trbench/internal/dl"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

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
	devices map[opening]*cuda.Device
	// tracer opens CUPTI; a test puts another in its place.
	tracer func() (*cupti.API, error)
}

// opening is what devices differ in.
type opening struct {
	kernels string
	second  bool // with the second launcher
}

func newGPU(getenv func(string) string, l Libraries) *gpu {
	g := &gpu{getenv: getenv, libraries: l, devices: map[opening]*cuda.Device{}}
	g.tracer = sync.OnceValues(g.openCUPTI)
	return g
}

// openCUPTI opens CUPTI. It is loaded where something is to be recorded alone.
func (g *gpu) openCUPTI() (*cupti.API, error) {
	o := cupti.Options{Path: g.libraries.CUPTI}
	if g.api != nil {
		if v := g.api.Version(); v > 0 {
			o.Driver = int(v)
		}
	}
	return cupti.Open(o)
}

// checkTrace says why nothing can be recorded. With try it begins a recording,
// which says who else holds CUPTI and whether this user may.
func (g *gpu) checkTrace(try bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return g.missing
	}
	a, err := g.tracer()
	if err != nil || !try {
		return err
	}
	t, err := a.Start(cupti.Config{Buffers: 1})
	if err != nil {
		return err
	}
	return t.Stop()
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

// use takes files that were named, and opens them: one that is missing, or no
// library of its kind, is an error, since a search would find another. A driver
// that finds no GPU is none. CUPTI is not opened: where nothing is recorded yet,
// it is not to be in the process.
func (g *gpu) use(l Libraries) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.libraries = l.over(g.libraries)
	g.ask()
	bad := func(flag, path string, err error) error {
		reason := missing(err)
		var nf *dl.NotFoundError
		if errors.As(err, &nf) && len(nf.Tried) > 0 {
			reason = nf.Tried[len(nf.Tried)-1].Err
		}
		return &bench.InputError{Name: "--" + flag + "=" + path, Reason: "cannot be used: " + reason}
	}
	noDNN, noBLAS := g.noDNN, g.noBLAS
	if g.missing != nil { // so that these were not opened
		if l.CuDNN != "" {
			_, noDNN = cudnn.Open(cudnn.Options{Path: l.CuDNN})
		}
		if l.CuBLAS != "" {
			_, noBLAS = cublas.Open(cublas.Options{Path: l.CuBLAS})
		}
	}
	switch {
	case l.Driver != "" && (errors.Is(g.missing, driver.ErrNoLibrary) || errors.Is(g.missing, driver.ErrNotDriver)):
		return bad("libcuda", l.Driver, g.missing)
	case l.CuDNN != "" && noDNN != nil:
		return bad("cudnn", l.CuDNN, noDNN)
	case l.CuBLAS != "" && noBLAS != nil:
		return bad("cublas", l.CuBLAS, noBLAS)
	case l.NVML == "":
		return nil
	}
	api, err := nvml.Open(l.NVML)
	var refused *nvml.Error
	switch {
	case err == nil:
		return api.Close() // it is opened again when it is asked something
	case errors.As(err, &refused) && refused.Code != nvml.FunctionNotFound:
		return nil // it is NVML, and the record says what it lacks
	}
	return bad("nvml", l.NVML, err)
}

// states lists the libraries.
func (g *gpu) states() []LibraryState {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask()
	d, n := LibraryState{Name: "driver"}, LibraryState{Name: "nvml"}
	dnn, blas := LibraryState{Name: "cudnn"}, LibraryState{Name: "cublas"}
	switch {
	case g.missing != nil:
		d.Missing = missing(g.missing)
		if u, ok := errors.AsType[*driver.Unavailable](g.missing); ok && u.Library != "" {
			d.Files = []string{u.Library}
		}
		return []LibraryState{d} // the others are of no use without it
	case g.dnn == nil:
		dnn.Missing = missing(g.noDNN)
	default:
		dnn.Version = cudnn.VersionString(g.dnn.Version())
		for _, p := range g.dnn.Parts() {
			if p.Path != "" {
				dnn.Files = append(dnn.Files, p.Path)
			}
		}
	}
	d.Version, d.Files = "for CUDA "+g.api.Version().String(), []string{g.api.Path()}
	if g.blas == nil {
		blas.Missing = missing(g.noBLAS)
	} else {
		blas.Version, blas.Files = gpuinfo.CuBLAS(g.blas, nil).Version, []string{g.blas.Path()}
	}
	profiler := LibraryState{Name: "cupti"}
	if a, err := g.tracer(); err != nil {
		profiler.Missing = missing(err)
	} else {
		profiler.Version, profiler.Files = strconv.Itoa(a.Version()), []string{a.Path()}
	}
	if api, err := nvml.Open(g.libraries.NVML); err != nil {
		n.Missing = err.Error()
	} else {
		n.Version, n.Files = api.DriverVersion().Value, []string{api.Path()}
		_ = api.Close()
	}
	return []LibraryState{d, dnn, blas, n, profiler}
}

// environment is what driver, NVML and libraries say of the GPUs; nil where
// there is no driver.
func (g *gpu) environment() machine.GPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil
	}
	return gpuinfo.Open(g.api, g.libraries.NVML, g.getenv("HOME"), gpuinfo.CuDNN(g.dnn, g.noDNN), gpuinfo.CuBLAS(g.blas, g.noBLAS))
}

// now is what NVML says of the GPUs at this moment; nil where there is no
// driver.
func (g *gpu) now() machine.GPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil
	}
	return gpuinfo.OpenNow(g.api, g.libraries.NVML)
}

// watch is what reads the GPUs after blocks, with NVML opened once; nil where
// there is none. The caller calls done when it is over.
func (g *gpu) watch() (read func() []results.Reading, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil, func() {}
	}
	api, err := nvml.Open(g.libraries.NVML)
	if err != nil {
		return nil, func() {}
	}
	from := gpuinfo.Sources{Driver: g.api, NVML: api}
	return func() []results.Reading { return gpuinfo.Now(from).Readings() }, func() { _ = api.Close() }
}

// calibrate measures what small things take on the first GPU, in about
// [calibrate.Budget].
func (g *gpu) calibrate() ([]results.Reading, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil, g.missing
	}
	all, err := calibrate.Run(g.api, 0)
	if err != nil {
		return all, err
	}
	return append(all, g.readingCost()...), nil
}

// readsTimed is how often reading the GPUs is timed.
const readsTimed = 9

// readingCost is what it takes to read the GPUs after a block: it stands between
// blocks, and is not to let the GPU come to rest. The caller holds mu.
func (g *gpu) readingCost() []results.Reading {
	api, err := nvml.Open(g.libraries.NVML)
	if err != nil {
		return nil // nothing is read there
	}
	defer api.Close()
	from := gpuinfo.Sources{Driver: g.api, NVML: api}
	var all []float64
	for range readsTimed {
		begin := time.Now()
		gpuinfo.Now(from)
		all = append(all, float64(time.Since(begin)))
	}
	return []results.Reading{{Name: "nvml.read_ns", Unit: "ns", Value: results.Median(all), N: readsTimed}}
}

// calibrateTrace measures what recording does on the first GPU.
func (g *gpu) calibrateTrace() (*results.TraceCalibration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ask(); g.missing != nil {
		return nil, g.missing
	}
	return calibrate.Trace(g.api, 0, g.tracer)
}

// describe says what --device=cuda has, or why it cannot be used.
func (g *gpu) describe() Device {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask()
	d := Device{Name: "cuda", Kernels: []string{"builtin"}, Target: workloads.Target{Lowering: workloads.Fused}, Launchers: []string{"purego"}}
	if err := g.second(); err == nil {
		d.Launchers = append(d.Launchers, gorgonia.Name)
	} else {
		d.LaunchersHint = err.Error()
	}
	if g.missing != nil {
		d.Missing, d.Refused = missing(g.missing), isThere(g.missing)
		return d
	}
	n, err := g.api.DeviceGetCount()
	if err == nil && n == 0 {
		d.Missing = driver.ErrNoDevice.Error()
		return d
	}
	var first driver.Device
	var name string
	if err == nil {
		first, err = g.api.DeviceGet(0)
	}
	if err == nil {
		name, err = g.api.DeviceGetName(first)
	}
	if err != nil {
		d.Missing, d.Refused = err.Error(), true
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

// second says why the second launcher cannot be used. It is linked with the
// driver that the loader finds, so no other may be in use beside it.
func (g *gpu) second() error {
	if _, err := gorgonia.New(); err != nil || g.api == nil {
		return err
	}
	lib, err := dl.Open(dl.Query{Name: "the CUDA driver", Files: []string{"libcuda.so.1"}, Dirs: []string{}})
	if err != nil {
		return err
	}
	defer lib.Close()
	if lib.Path() != g.api.Path() {
		return fmt.Errorf("launcher %s is linked with %s; drop --libcuda, or name that file", gorgonia.Name, lib.Path())
	}
	return nil
}

// missing is a library's absence in one sentence, with what to do.
func missing(err error) string {
	var u *driver.Unavailable
	if !errors.As(err, &u) {
		return err.Error()
	}
	s := u.Reason.Error()
	// What the loader says of its own search names one file of many.
	if u.Cause != nil && !errors.Is(u.Reason, driver.ErrNoLibrary) {
		s += " (" + u.Cause.Error() + ")"
	}
	if u.Advice == "" {
		return s
	}
	return s + "; " + strings.ToLower(u.Advice[:1]) + u.Advice[1:]
}

// isThere says of a driver that cannot be used whether it is there. A machine
// without one, or without a GPU, has none; a toolkit's stub is none.
func isThere(err error) bool {
	var call *driver.Error
	if errors.As(err, &call) && call.Code == driver.StubLibrary {
		return false
	}
	return !errors.Is(err, driver.ErrNoLibrary) && !errors.Is(err, driver.ErrNotDriver) && !errors.Is(err, driver.ErrNoDevice)
}

// open returns the device with a kernel set, with the second launcher or
// without, the same one each time.
func (g *gpu) open(kernels string, second bool) (device.Device, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask()
	if g.missing != nil {
		return nil, &bench.InputError{Name: "--device=cuda", Reason: "cannot be used: " + missing(g.missing)}
	}
	if d := g.devices[opening{kernels, second}]; d != nil {
		return d, nil
	}
	tuning, err := cuda.ParseTuning(g.libraries.Tuning)
	if err != nil {
		return nil, &bench.InputError{Name: "TRBENCH_TUNING", Reason: err.Error()}
	}
	o := cuda.Options{Driver: g.api, Tuning: tuning, CUPTI: g.tracer}
	if kernels == "cudnn" {
		if g.dnn == nil {
			return nil, &bench.InputError{Name: "--kernels=cudnn", Reason: "cannot be used: " + g.noDNN.Error()}
		}
		o.CuDNN, o.CuBLAS = g.dnn, g.blas
	}
	if second {
		var err error
		if o.Submitter, err = gorgonia.New(); err != nil {
			return nil, &bench.InputError{Name: "--launcher=" + gorgonia.Name, Reason: "cannot be used: " + err.Error()}
		}
	}
	d, err := cuda.New(o)
	if err != nil {
		return nil, err
	}
	g.devices[opening{kernels, second}] = d
	return d, nil
}

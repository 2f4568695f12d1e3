// Package gpuinfo says what GPUs a record was made on, and with which
// libraries: it fills the GPU's part of package machine's environment block
// from the driver, NVML and the libraries that were opened.
//
// In the flow it stands between the bindings and package machine, neither of
// which knows the other. It reads once, and holds nothing open.
//
// The package keeps one rule: every figure is one source's own answer or
// absent with that source's reason. Files are named without the user: a home
// folder is "~", and no UUID or serial number is asked for.
package gpuinfo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/nvml"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// Names of what this package adds to the names of package machine.
const (
	ComputeCapability = "gpu.compute_capability" // 9.0
	Multiprocessors   = "gpu.multiprocessors"
	CuBLASVersion     = "cublas.version"
	// FilePrefix stands before a library and a part of it: file.cudnn.libcudnn_ops.
	FilePrefix = "file."

	SMClockHz     = machine.GPUClockHz    // now, median over GPUs
	MemoryClockHz = "gpu.memory_clock_hz" // now, median over GPUs
	PowerW        = "gpu.power_w"         // now, largest
	Temperature   = machine.GPUTemperature
	Busy          = "gpu.busy"        // ratio of the last sample period, largest
	MemoryUsed    = "gpu.memory_used" // bytes, largest
	Throttled     = "gpu.throttled"   // GPUs that are held down now
)

// File is one that was opened, or why it was not.
type File struct {
	Name string // without folder and version: "libcudnn_ops"
	Path string
	Why  string
}

// Library is one that the GPU's device uses.
type Library struct {
	Name    string // "cudnn"
	Version string
	// Why says why there is no version.
	Why   string
	Files []File
}

// CuDNN describes cuDNN; l is nil if it could not be opened, err says why.
func CuDNN(l *cudnn.Library, err error) Library {
	d := Library{Name: "cudnn"}
	if l == nil {
		d.Why = reason(err)
		return d
	}
	d.Version = cudnn.VersionString(l.Version())
	for _, p := range l.Parts() {
		d.Files = append(d.Files, File{stem(p.Name), p.Path, p.Err})
	}
	return d
}

// CuBLAS describes cuBLASLt likewise. Its versions count 10000, 100, 1.
func CuBLAS(l *cublas.Library, err error) Library {
	d := Library{Name: "cublas"}
	if l == nil {
		d.Why = reason(err)
		return d
	}
	v := l.Version()
	d.Version = fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
	if l.Path() != "" {
		d.Files = []File{{Name: stem(l.Path()), Path: l.Path()}}
	}
	return d
}

func reason(err error) string {
	if err == nil {
		return "it was not opened"
	}
	return err.Error()
}

// stem is a file's name up to ".so".
func stem(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".so")
	return name
}

// Sources is what Read asks.
type Sources struct {
	Driver *driver.API // must not be nil
	// NVML may be nil; NoNVML then says why.
	NVML      *nvml.API
	NoNVML    error
	Libraries []Library
	// Home is the folder that file names are shortened by.
	Home string
}

// Open opens what [Read] wants of NVML, from a file or folder or, if path is
// empty, by search, and reads.
func Open(api *driver.API, path, home string, libraries ...Library) *Info {
	s := Sources{Driver: api, Libraries: libraries, Home: home}
	if s.NVML, s.NoNVML = nvml.Open(path); s.NoNVML != nil {
		s.NVML = nil
		return Read(s)
	}
	i := Read(s)
	_ = s.NVML.Close() // everything was read
	return i
}

// OpenNow opens what [Now] wants of NVML, from a file or folder or, if path is
// empty, by search, and reads. It has no figures where there is no NVML.
func OpenNow(api *driver.API, path string) *Info {
	s := Sources{Driver: api}
	if s.NVML, s.NoNVML = nvml.Open(path); s.NoNVML != nil {
		return &Info{}
	}
	i := Now(s)
	_ = s.NVML.Close() // everything was read
	return i
}

// Now reads the figures of the moment alone.
func Now(s Sources) *Info {
	r := reader{s: s}
	n, err := s.Driver.DeviceGetCount()
	if err != nil {
		return &r.Info
	}
	now := moment{}
	for i := range n {
		dev, err := s.Driver.DeviceGet(i)
		if err != nil {
			continue
		}
		if snapshot, err := r.snapshot(dev); err == nil {
			now.add(snapshot)
		}
	}
	r.readings = now.readings()
	return &r.Info
}

// Info is what was read; it implements [machine.GPU].
type Info struct {
	fields   []results.EnvironmentField
	readings []results.Reading
}

var _ machine.GPU = (*Info)(nil)

// Fields are the facts.
func (i *Info) Fields() []results.EnvironmentField { return slices.Clone(i.fields) }

// Readings are the figures of the moment.
func (i *Info) Readings() []results.Reading { return slices.Clone(i.readings) }

// Read asks the sources about every GPU that the driver shows. It needs no
// context and takes some milliseconds a GPU.
func Read(s Sources) *Info {
	r := reader{s: s}
	r.versions()
	r.gpus()
	r.files()
	return &r.Info
}

type reader struct {
	Info
	s Sources
}

func (r *reader) field(name, role, value, why string) {
	if value != "" {
		why = ""
	}
	r.fields = append(r.fields, results.EnvironmentField{Name: name, Value: value, Role: role, Why: why})
}

func (r *reader) versions() {
	version, why := "", reason(r.s.NoNVML)
	if r.s.NVML != nil {
		f := r.s.NVML.DriverVersion()
		version, why = f.Value, f.Absent
	}
	r.field(machine.DriverVersion, results.Subject, version, why)
	r.field(machine.CUDAVersion, results.Subject, r.s.Driver.Version().String(), "")
	for _, l := range r.s.Libraries {
		r.field(l.Name+".version", results.Subject, l.Version, l.Why)
	}
}

// files names every file opened.
func (r *reader) files() {
	owners := []Library{{Name: "driver", Files: []File{{"libcuda", r.s.Driver.Path(), ""}}}}
	nv := File{Name: "libnvidia-ml", Why: reason(r.s.NoNVML)}
	if r.s.NVML != nil {
		nv = File{Name: "libnvidia-ml", Path: r.s.NVML.Path()}
	}
	owners = append(append(owners, Library{Name: "nvml", Files: []File{nv}}), r.s.Libraries...)
	for _, l := range owners {
		for _, f := range l.Files {
			r.field(FilePrefix+l.Name+"."+f.Name, results.Subject, r.short(f.Path), cmp.Or(r.short(f.Why), "no file was opened"))
		}
	}
}

// short writes a home folder as "~", wherever in s it stands.
func (r *reader) short(s string) string {
	if home := filepath.Clean(r.s.Home); r.s.Home != "" && home != "/" {
		s = strings.ReplaceAll(s, home+"/", "~/")
	}
	return s
}

// column is one fact over all GPUs.
type column struct {
	values []string
	why    string
}

func (c *column) add(value string, err error) {
	switch {
	case err != nil:
		c.why = cmp.Or(c.why, err.Error())
	case value != "":
		c.values = append(c.values, value)
	}
}

// text is the value that all GPUs share, or the different ones with commas. If
// one GPU has none, the reason stands instead.
func (c *column) text() string {
	if c.why != "" {
		return ""
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(c.values))), ", ")
}

func (r *reader) gpus() {
	n, err := r.s.Driver.DeviceGetCount()
	count := column{}
	count.add(strconv.Itoa(n), err)
	if err != nil {
		n = 0
	}
	names := []string{machine.GPUName, machine.GPUMemoryBytes, machine.GPUClockLimitHz, machine.GPUMemoryClockLimit,
		machine.GPUPowerLimitW, machine.GPUMIG, machine.GPUECC, machine.GPUPersistence, ComputeCapability, Multiprocessors}
	columns := map[string]*column{}
	for _, name := range names {
		columns[name] = &column{why: count.why}
	}
	moment := moment{}
	for i := range n {
		r.gpu(i, columns, &moment)
	}
	r.field(machine.GPUCount, results.Bed, count.text(), count.why)
	for _, name := range names {
		r.field(name, results.Bed, columns[name].text(), columns[name].why)
	}
	r.readings = append(r.readings, moment.readings()...)
}

// gpu asks about one.
func (r *reader) gpu(ordinal int, columns map[string]*column, now *moment) {
	api := r.s.Driver
	dev, err := api.DeviceGet(ordinal)
	if err != nil {
		for _, c := range columns {
			c.add("", err)
		}
		return
	}
	name, err := api.DeviceGetName(dev)
	columns[machine.GPUName].add(name, err)
	total, err := api.DeviceTotalMem(dev)
	columns[machine.GPUMemoryBytes].add(strconv.FormatUint(total, 10), err)
	major, err := api.DeviceGetAttribute(dev, driver.DeviceComputeCapabilityMajor)
	minor, err2 := api.DeviceGetAttribute(dev, driver.DeviceComputeCapabilityMinor)
	columns[ComputeCapability].add(fmt.Sprintf("%d.%d", major, minor), errors.Join(err, err2))
	sms, err := api.DeviceGetAttribute(dev, driver.DeviceMultiprocessorCount)
	columns[Multiprocessors].add(strconv.Itoa(sms), err)

	s, err := r.snapshot(dev)
	if err != nil {
		for _, name := range []string{machine.GPUClockLimitHz, machine.GPUMemoryClockLimit, machine.GPUPowerLimitW, machine.GPUMIG,
			machine.GPUECC, machine.GPUPersistence} {
			columns[name].add("", err)
		}
		return
	}
	put := func(name, value, absent string) {
		if absent != "" {
			err := errors.New(absent)
			columns[name].add("", err)
			return
		}
		columns[name].add(value, nil)
	}
	put(machine.GPUClockLimitHz, hz(s.MaxSMClockMHz.Value), s.MaxSMClockMHz.Absent)
	put(machine.GPUMemoryClockLimit, hz(s.MaxMemClockMHz.Value), s.MaxMemClockMHz.Absent)
	put(machine.GPUPowerLimitW, strconv.FormatFloat(float64(s.PowerLimitMilliwatts.Value)/1000, 'g', -1, 64), s.PowerLimitMilliwatts.Absent)
	put(machine.GPUMIG, onOff(s.MIG.Value), s.MIG.Absent)
	put(machine.GPUECC, onOff(s.ECC.Value), s.ECC.Absent)
	put(machine.GPUPersistence, onOff(s.Persistence.Value), s.Persistence.Absent)
	now.add(s)
}

// snapshot is what NVML says of the GPU that the driver knows by the same bus
// id.
func (r *reader) snapshot(dev driver.Device) (nvml.Snapshot, error) {
	if r.s.NVML == nil {
		return nvml.Snapshot{}, errors.New(reason(r.s.NoNVML))
	}
	bus, err := r.s.Driver.DeviceGetPCIBusID(dev)
	if err != nil {
		return nvml.Snapshot{}, err
	}
	d, err := r.s.NVML.DeviceByPCI(bus)
	if err != nil {
		return nvml.Snapshot{}, err
	}
	return d.Snapshot(), nil
}

func hz(mhz int) string { return strconv.Itoa(mhz * 1_000_000) }

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// moment collects what changes.
type moment struct {
	sm, mem, power, temperature, busy, used, throttled []float64
	held                                               map[nvml.Reasons]int // GPUs, by a single reason
}

func (m *moment) add(s nvml.Snapshot) {
	put := func(to *[]float64, v float64, ok bool) {
		if ok {
			*to = append(*to, v)
		}
	}
	put(&m.sm, float64(s.SMClockMHz.Value)*1e6, s.SMClockMHz.OK())
	put(&m.mem, float64(s.MemClockMHz.Value)*1e6, s.MemClockMHz.OK())
	put(&m.power, float64(s.PowerMilliwatts.Value)/1000, s.PowerMilliwatts.OK())
	put(&m.temperature, float64(s.TemperatureC.Value), s.TemperatureC.OK())
	put(&m.busy, float64(s.Utilisation.Value.GPU)/100, s.Utilisation.OK())
	put(&m.used, float64(s.Memory.Value.Used), s.Memory.OK())
	held := 0.0
	for bit := nvml.Reasons(1); bit != 0; bit <<= 1 {
		if reason := s.Reasons.Value & bit; s.Reasons.OK() && reason.Throttled() {
			held = 1
			if m.held == nil {
				m.held = map[nvml.Reasons]int{}
			}
			m.held[reason]++
		}
	}
	put(&m.throttled, held, s.Reasons.OK())
}

func (m *moment) readings() []results.Reading {
	sum := func(v []float64) (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	var out []results.Reading
	for _, c := range []struct {
		name, unit string
		values     []float64
		over       func([]float64) float64
	}{
		{SMClockHz, "Hz", m.sm, results.Median},
		{MemoryClockHz, "Hz", m.mem, results.Median},
		{PowerW, "W", m.power, slices.Max[[]float64]},
		{Temperature, "celsius", m.temperature, slices.Max[[]float64]},
		{Busy, "ratio", m.busy, slices.Max[[]float64]},
		{MemoryUsed, "bytes", m.used, slices.Max[[]float64]},
		{Throttled, "count", m.throttled, sum},
	} {
		if len(c.values) > 0 {
			out = append(out, results.Reading{Name: c.name, Unit: c.unit, Value: c.over(c.values), N: len(c.values)})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(m.held)) {
		out = append(out, results.Reading{Name: machine.GPUHeldPrefix + reason.String(), Unit: "count",
			Value: float64(m.held[reason]), N: len(m.throttled)})
	}
	return out
}

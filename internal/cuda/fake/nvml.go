package fake

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Management is what NVML says of a machine. Fill it in, then [Management.Start].
type Management struct {
	DriverVersion string
	GPUs          []Managed
	// InitCode is what nvmlInit_v2 returns: 9 where no kernel module is loaded.
	InitCode uint32
	// Absent lists symbols that this NVML lacks.
	Absent []string
	// Codes makes calls fail, by symbol: 3 is "not supported".
	Codes map[string]uint32
}

// Managed is a GPU as NVML sees it.
type Managed struct {
	Name, UUID, BusID              string
	SMClock, MemClock              int // MHz
	MaxSMClock, MaxMemClock        int
	Power, PowerLimit              int // mW
	Temperature                    int
	ECC, MIG, Persistence          bool
	Reasons                        uint64
	UtilisationGPU, UtilisationMem int
	Total, Free, Used              uint64
}

// NVML is the management side of a machine with its GPUs idle.
func (m *Machine) NVML() *Management {
	g := &Management{DriverVersion: "580.65.06", InitCode: 0}
	if len(m.GPUs) == 0 {
		g.InitCode = 9
	}
	for i, d := range m.GPUs {
		g.GPUs = append(g.GPUs, Managed{Name: d.Name, UUID: fmt.Sprintf("GPU-face0000-0000-0000-0000-%012d", i),
			BusID: fmt.Sprintf("0000:%02x:00.0", 0x17+i), SMClock: 345, MemClock: d.MemKHz / 1000,
			MaxSMClock: d.ClockKHz / 1000, MaxMemClock: d.MemKHz / 1000, Power: 76_000, PowerLimit: 700_000, Temperature: 30,
			ECC: true, Persistence: true, Reasons: 1, Total: d.Memory, Free: d.Memory})
	}
	return g
}

var managing atomic.Pointer[Management]

// Start makes g the management that runs and returns its library. The caller
// stops it.
func (g *Management) Start() (dl.Resolver, error) {
	if !managing.CompareAndSwap(nil, g) {
		return nil, fmt.Errorf("fake NVML: another runs")
	}
	return nvmlResolver{g}, nil
}

// Stop makes room for another.
func (g *Management) Stop() { managing.CompareAndSwap(g, nil) }

type nvmlResolver struct{ g *Management }

func (r nvmlResolver) Lookup(name string) (uintptr, error) {
	f, ok := nvmlFunctions()[name]
	for _, a := range r.g.Absent {
		ok = ok && a != name
	}
	if !ok {
		return 0, fmt.Errorf("fake NVML: %s: %w", name, dl.ErrNoSymbol)
	}
	return f, nil
}

var nvmlFunctions = sync.OnceValue(func() map[string]uintptr {
	t := map[string]uintptr{}
	def := func(name string, fn any) { t[name] = purego.NewCallback(fn) }
	on := func(name string, body func(g *Management) uint32) uintptr {
		g := managing.Load()
		if g == nil {
			return 1
		}
		if c := g.Codes[name]; c != 0 {
			return uintptr(c)
		}
		return uintptr(body(g))
	}
	// A handle is a GPU's number, from 1.
	dev := func(name string, h uintptr, body func(d *Managed)) uintptr {
		return on(name, func(g *Management) uint32 {
			if h == 0 || int(h) > len(g.GPUs) {
				return 2
			}
			body(&g.GPUs[h-1])
			return 0
		})
	}
	bit := func(b bool) uint32 {
		if b {
			return 1
		}
		return 0
	}
	text := func(b *byte, n uint32, s string) {
		out := unsafe.Slice(b, n)
		out[copy(out[:n-1], s)] = 0
	}
	def("nvmlInit_v2", func() uintptr { return on("nvmlInit_v2", func(g *Management) uint32 { return g.InitCode }) })
	def("nvmlShutdown", func() uintptr { return on("nvmlShutdown", func(*Management) uint32 { return 0 }) })
	def("nvmlSystemGetDriverVersion", func(b *byte, n uint32) uintptr {
		return on("nvmlSystemGetDriverVersion", func(g *Management) uint32 { text(b, n, g.DriverVersion); return 0 })
	})
	def("nvmlDeviceGetCount_v2", func(n *uint32) uintptr {
		return on("nvmlDeviceGetCount_v2", func(g *Management) uint32 { *n = uint32(len(g.GPUs)); return 0 })
	})
	def("nvmlDeviceGetHandleByIndex_v2", func(i uint32, out *uintptr) uintptr {
		return on("nvmlDeviceGetHandleByIndex_v2", func(g *Management) uint32 {
			if int(i) >= len(g.GPUs) {
				return 2
			}
			*out = uintptr(i + 1)
			return 0
		})
	})
	def("nvmlDeviceGetHandleByPciBusId_v2", func(id *byte, out *uintptr) uintptr {
		return on("nvmlDeviceGetHandleByPciBusId_v2", func(g *Management) uint32 {
			for i, d := range g.GPUs {
				if d.BusID == cText(id) {
					*out = uintptr(i + 1)
					return 0
				}
			}
			return 6
		})
	})
	for name, get := range map[string]func(d *Managed) string{
		"nvmlDeviceGetName": func(d *Managed) string { return d.Name },
		"nvmlDeviceGetUUID": func(d *Managed) string { return d.UUID },
	} {
		def(name, func(h uintptr, b *byte, n uint32) uintptr {
			return dev(name, h, func(d *Managed) { text(b, n, get(d)) })
		})
	}
	for name, get := range map[string]func(d *Managed, domain uint32) int{
		"nvmlDeviceGetClockInfo":    func(d *Managed, c uint32) int { return [3]int{d.SMClock, d.SMClock, d.MemClock}[c%3] },
		"nvmlDeviceGetMaxClockInfo": func(d *Managed, c uint32) int { return [3]int{d.MaxSMClock, d.MaxSMClock, d.MaxMemClock}[c%3] },
		"nvmlDeviceGetTemperature":  func(d *Managed, _ uint32) int { return d.Temperature },
	} {
		def(name, func(h uintptr, c uint32, v *uint32) uintptr {
			return dev(name, h, func(d *Managed) { *v = uint32(get(d, c)) })
		})
	}
	for name, get := range map[string]func(d *Managed) uint32{
		"nvmlDeviceGetPowerUsage":         func(d *Managed) uint32 { return uint32(d.Power) },
		"nvmlDeviceGetEnforcedPowerLimit": func(d *Managed) uint32 { return uint32(d.PowerLimit) },
		"nvmlDeviceGetPersistenceMode":    func(d *Managed) uint32 { return bit(d.Persistence) },
	} {
		def(name, func(h uintptr, v *uint32) uintptr { return dev(name, h, func(d *Managed) { *v = get(d) }) })
	}
	for name, get := range map[string]func(d *Managed) bool{
		"nvmlDeviceGetEccMode": func(d *Managed) bool { return d.ECC },
		"nvmlDeviceGetMigMode": func(d *Managed) bool { return d.MIG },
	} {
		def(name, func(h uintptr, now, pending *uint32) uintptr {
			return dev(name, h, func(d *Managed) { *now, *pending = bit(get(d)), bit(get(d)) })
		})
	}
	for _, name := range []string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"} {
		def(name, func(h uintptr, v *uint64) uintptr { return dev(name, h, func(d *Managed) { *v = d.Reasons }) })
	}
	def("nvmlDeviceGetUtilizationRates", func(h uintptr, u *[2]uint32) uintptr {
		return dev("nvmlDeviceGetUtilizationRates", h, func(d *Managed) {
			*u = [2]uint32{uint32(d.UtilisationGPU), uint32(d.UtilisationMem)}
		})
	})
	def("nvmlDeviceGetMemoryInfo", func(h uintptr, m *[3]uint64) uintptr {
		return dev("nvmlDeviceGetMemoryInfo", h, func(d *Managed) { *m = [3]uint64{d.Total, d.Free, d.Used} })
	})
	return t
})

package dnn

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
)

// fake stands for both libraries. Its functions are C function pointers, so
// the real call path is used. It keeps what each descriptor was set to, writes
// down every call, and answers heuristics from a table.
type fake struct {
	calls   []string
	next    uintptr
	live    map[uintptr]*fakeDesc // by address
	handles int
	others  int // cuBLASLt's descriptors

	version  int
	configs  map[int32][]fakeConfig // by heuristic mode
	missing  string                 // a symbol that is not there
	failAt   string                 // calls that fail, as written in calls (a prefix)
	failNth  int                    // the call that fails, from 1
	failWith int32
	engines  map[int64]fakeConfig // by index, for rebuilding
	algos    []fakeAlgo
	executed []fakeRun
}

type fakeConfig struct {
	engine    int64
	knobs     []Knob
	notes     []int32
	workspace int64
	refuses   bool // the plan cannot be finalised
}

type fakeAlgo struct {
	id, reduction int32
	flags         uint64
	workspace     uint64
}

type fakeRun struct {
	handle  uintptr
	engine  int64
	knobs   []Knob
	uids    []int64
	ptrs    []uint64
	scratch uint64
}

type fakeDesc struct {
	kind      int32
	attrs     map[int32][]byte
	finalised bool
	config    *fakeConfig
	knob      Knob
}

// The functions exist once in a process (their number is limited) and work on
// the fake that is current.
var (
	fakeMu  sync.Mutex
	current *fake
	symbols map[string]uintptr
)

// use makes a fake current for a test.
func (f *fake) use(t *testing.T) *fake {
	t.Helper()
	fakeMu.Lock()
	current = f
	t.Cleanup(func() {
		current = nil
		fakeMu.Unlock()
	})
	if symbols == nil {
		symbols = fakeSymbols()
	}
	f.live, f.next = map[uintptr]*fakeDesc{}, 0x1000
	if f.version == 0 {
		f.version = 91900
	}
	f.engines = map[int64]fakeConfig{}
	for _, cs := range f.configs {
		for _, c := range cs {
			f.engines[c.engine] = c
		}
	}
	return f
}

// Lookup implements dl.Resolver.
func (f *fake) Lookup(name string) (uintptr, error) {
	if name == f.missing || symbols[name] == 0 {
		return 0, errors.New("no symbol " + name)
	}
	return symbols[name], nil
}

func (f *fake) libraries(t *testing.T) (*cudnn.Library, *cublas.Library) {
	t.Helper()
	d, err := cudnn.New(f)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cublas.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

func (f *fake) builder(t *testing.T) *Builder {
	t.Helper()
	b, err := New(f.libraries(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// leaks says what is still alive.
func (f *fake) leaks() string {
	if len(f.live) == 0 && f.handles == 0 && f.others == 0 {
		return ""
	}
	return fmt.Sprintf("%d descriptors, %d handles, %d cuBLASLt objects alive", len(f.live), f.handles, f.others)
}

func (f *fake) log(format string, args ...any) int32 {
	s := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, s)
	if f.failAt != "" && strings.HasPrefix(s, f.failAt) || len(f.calls) == f.failNth {
		return f.failWith
	}
	return 0
}

func (f *fake) alloc(kind int32) uintptr {
	f.next += 0x10
	f.live[f.next] = &fakeDesc{kind: kind, attrs: map[int32][]byte{}}
	return f.next
}

var elementSize = map[int32]int{0: 8, 1: 4, 2: 1, 3: 8, 4: 4, 5: 8, 6: 8, 7: 4, 8: 4, 9: 4, 10: 4, 11: 4, 14: 4, 15: 8, 16: 4, 19: 4}

func at[T any](p unsafe.Pointer, i int) *T {
	var v T
	return (*T)(unsafe.Add(p, i*int(unsafe.Sizeof(v))))
}

// show writes an attribute's values: numbers, except that descriptors are "->".
func show(typ int32, n int, p unsafe.Pointer) string {
	var s []string
	for i := range n {
		switch typ {
		case 2:
			s = append(s, fmt.Sprint(*at[bool](p, i)))
		case 3:
			s = append(s, fmt.Sprint(*at[int64](p, i)))
		case 4:
			s = append(s, fmt.Sprint(*at[float32](p, i)))
		case 5:
			s = append(s, fmt.Sprintf("%g", *at[float64](p, i)))
		case 15:
			s = append(s, "->")
		case 0, 6:
			return ""
		default:
			s = append(s, fmt.Sprint(*at[int32](p, i)))
		}
	}
	return " = " + strings.Join(s, ",")
}

const (
	statusBadParam     = 2000
	statusNotFinalized = 2004
	statusUnsupported  = 3000
)

func fakeSymbols() map[string]uintptr {
	message := append([]byte("what the library says"), 0)
	name := append([]byte("CUDNN_STATUS_OF_THE_FAKE"), 0)
	keep = append(keep, message, name)
	m := map[string]uintptr{}
	def := func(n string, f any) { m[n] = purego.NewCallback(f) }
	def("cudnnGetVersion", func() uintptr { return uintptr(current.version) })
	def("cudnnGetCudartVersion", func() uintptr { return 13000 })
	def("cudnnGetErrorString", func(code int32) uintptr { return uintptr(unsafe.Pointer(&name[0])) })
	def("cudnnGetLastErrorString", func(p unsafe.Pointer, n uintptr) uintptr {
		copy(unsafe.Slice((*byte)(p), n), message)
		return 0
	})
	def("cudnnCreate", func(out *uintptr) int32 {
		if r := current.log("Handle"); r != 0 {
			return r
		}
		current.handles++
		current.next += 0x10
		*out = current.next
		return 0
	})
	def("cudnnDestroy", func(h uintptr) int32 { current.handles--; return current.log("DestroyHandle") })
	def("cudnnSetStream", func(h, s uintptr) int32 { return current.log("SetStream") })
	def("cudnnBackendCreateDescriptor", func(kind int32, out *uintptr) int32 {
		if r := current.log("Create (%d)", kind); r != 0 {
			return r
		}
		*out = current.alloc(kind)
		return 0
	})
	def("cudnnBackendDestroyDescriptor", func(d uintptr) int32 {
		if current.live[d] == nil {
			return statusBadParam
		}
		delete(current.live, d)
		return 0
	})
	def("cudnnBackendFinalize", func(d uintptr) int32 { return current.finalize(d) })
	def("cudnnBackendSetAttribute", func(d uintptr, attr, typ int32, n int64, p unsafe.Pointer) int32 {
		return current.set(d, attr, typ, int(n), p)
	})
	def("cudnnBackendGetAttribute", func(d uintptr, attr, typ int32, n int64, got *int64, p unsafe.Pointer) int32 {
		return current.get(d, attr, typ, int(n), got, p)
	})
	def("cudnnBackendExecute", func(h, plan, pack uintptr) int32 { return current.execute(h, plan, pack) })
	fakeLt(def, name)
	return m
}

// keep holds memory whose address C-side code returns.
var keep [][]byte

func (f *fake) set(d uintptr, attr, typ int32, n int, p unsafe.Pointer) int32 {
	x := f.live[d]
	if x == nil || x.finalised || elementSize[typ] == 0 {
		f.log("Set on a bad descriptor (%d) (%d)", attr, typ)
		return statusBadParam
	}
	if typ == 15 {
		for i := range n {
			if y := f.live[*at[uintptr](p, i)]; y == nil || !y.finalised {
				f.log("Set (%d) to a descriptor that is not finalised", attr)
				return statusNotFinalized
			}
		}
	}
	x.attrs[attr] = append([]byte(nil), unsafe.Slice((*byte)(p), n*elementSize[typ])...)
	return f.log("Set (%d) (%d) n=%d%s", attr, typ, n, show(typ, n, p))
}

func int64s(b []byte) []int64 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(&b[0])), len(b)/8)
}

func (f *fake) finalize(d uintptr) int32 {
	x := f.live[d]
	if x == nil || x.finalised {
		return statusBadParam
	}
	if r := f.log("Finalize (%d)", x.kind); r != 0 {
		return r
	}
	switch cudnn.DescriptorType(x.kind) {
	case cudnn.EngineHeurDescriptor:
		mode := *at[int32](unsafe.Pointer(&x.attrs[int32(cudnn.EngineHeurMode)][0]), 0)
		if _, ok := f.configs[mode]; !ok {
			return statusUnsupported
		}
	case cudnn.EngineDescriptor:
		c, ok := f.engines[int64s(x.attrs[int32(cudnn.EngineGlobalIndex)])[0]]
		if !ok {
			return statusUnsupported
		}
		c.knobs = nil
		x.config = &c
	case cudnn.KnobChoiceDescriptor:
		x.knob = Knob{
			*at[int32](unsafe.Pointer(&x.attrs[int32(cudnn.KnobChoiceKnobType)][0]), 0),
			int64s(x.attrs[int32(cudnn.KnobChoiceKnobValue)])[0],
		}
	case cudnn.EngineCfgDescriptor:
		e := *f.live[uintptr(int64s(x.attrs[int32(cudnn.EngineCfgEngine)])[0])].config
		for _, k := range int64s(x.attrs[int32(cudnn.EngineCfgKnobChoices)]) {
			e.knobs = append(e.knobs, f.live[uintptr(k)].knob)
		}
		x.config = &e
	case cudnn.ExecutionPlanDescriptor:
		x.config = f.live[uintptr(int64s(x.attrs[int32(cudnn.ExecutionPlanEngineConfig)])[0])].config
		if x.config.refuses {
			return statusUnsupported
		}
	}
	x.finalised = true
	return 0
}

func (f *fake) get(d uintptr, attr, typ int32, n int, got *int64, p unsafe.Pointer) int32 {
	x := f.live[d]
	if x == nil {
		return statusBadParam
	}
	if r := f.log("Get (%d) (%d) n=%d", attr, typ, n); r != 0 {
		return r
	}
	put := func(v ...int64) int32 {
		*got = int64(len(v))
		for i := range min(n, len(v)) {
			if elementSize[typ] == 4 {
				*at[int32](p, i) = int32(v[i])
			} else {
				*at[int64](p, i) = v[i]
			}
		}
		return 0
	}
	fill := func(i int, c *fakeConfig, k Knob) {
		y := f.live[*at[uintptr](p, i)]
		y.config, y.knob, y.finalised = c, k, true
	}
	switch cudnn.Attribute(attr) {
	case cudnn.EngineHeurResults:
		cs := f.configs[*at[int32](unsafe.Pointer(&x.attrs[int32(cudnn.EngineHeurMode)][0]), 0)]
		*got = int64(len(cs))
		for i := range min(n, len(cs)) {
			fill(i, &cs[i], Knob{})
		}
	case cudnn.EngineCfgEngine:
		*got = 1
		fill(0, x.config, Knob{})
	case cudnn.EngineCfgKnobChoices:
		*got = int64(len(x.config.knobs))
		for i, k := range x.config.knobs {
			fill(i, nil, k)
		}
	case cudnn.KnobChoiceKnobType:
		return put(int64(x.knob.Type))
	case cudnn.KnobChoiceKnobValue:
		return put(x.knob.Value)
	case cudnn.EngineGlobalIndex:
		return put(x.config.engine)
	case cudnn.EngineNumericalNote:
		var v []int64
		for _, note := range x.config.notes {
			v = append(v, int64(note))
		}
		return put(v...)
	case cudnn.EngineBehaviorNote:
		return put()
	case cudnn.EngineCfgWorkspaceSize, cudnn.ExecutionPlanWorkspaceSize:
		return put(x.config.workspace)
	default:
		return statusBadParam
	}
	return 0
}

func (f *fake) execute(h, plan, pack uintptr) int32 {
	p, v := f.live[plan], f.live[pack]
	if p == nil || v == nil || !p.finalised || !v.finalised {
		return statusBadParam
	}
	if r := f.log("Execute"); r != 0 {
		return r
	}
	r := fakeRun{handle: h, engine: p.config.engine, knobs: p.config.knobs}
	r.uids = int64s(v.attrs[int32(cudnn.VariantPackUniqueIDs)])
	for _, a := range int64s(v.attrs[int32(cudnn.VariantPackDataPointers)]) {
		r.ptrs = append(r.ptrs, uint64(a))
	}
	r.scratch = uint64(int64s(v.attrs[int32(cudnn.VariantPackWorkspace)])[0])
	f.executed = append(f.executed, r)
	return 0
}

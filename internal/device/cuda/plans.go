package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cuda/dnn"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Plan is what a library runs for all nodes of one key, and how it came to be
// chosen.
type Plan struct {
	Key    string     `json:"key"`
	Choice dnn.Choice `json:"choice"`
	// Source is "timed" or "heuristic"; Offered is how many candidates there were.
	Source  string `json:"source"`
	Offered int    `json:"offered"`
	// TimeNs is the GPU time of one execution when it was chosen; 0 if nothing
	// was timed.
	TimeNs float64 `json:"time_ns"`
}

// candidates is how many of a library's proposals are timed for a node. The
// best one was never seen behind the eighth.
const candidates = 8

// rearranged is the form of a node that a library is to compute in its place;
// nil if it is the node itself.
func (t Tuning) rearranged(b *workloads.Bound) *kernels.Rearranged {
	if !t.SpaceToDepth {
		return nil
	}
	return kernels.Rearrange(b)
}

// plan returns the plan chosen for a node, and the node's rearranged form if
// the plan is for that.
func (d *Device) plan(b *workloads.Bound, t Tuning) (Plan, *kernels.Rearranged, bool) {
	if d.opts.CuDNN == nil && d.opts.CuBLAS == nil {
		return Plan{}, nil, false
	}
	if x := t.rearranged(b); x != nil {
		if p, ok := d.planOf(x.Bound); ok {
			return p, x, true
		}
	}
	p, ok := d.planOf(b)
	return p, nil, ok
}

func (d *Device) planOf(b *workloads.Bound) (Plan, bool) {
	key, err := dnn.Key(b)
	if err != nil {
		return Plan{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.plans[key]
	return p, ok
}

// Plans returns what was chosen so far, by key, as JSON values: what a parent
// process records and hands to its workers.
func (d *Device) Plans() ([]json.RawMessage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]string, 0, len(d.plans))
	for k := range d.plans {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := []json.RawMessage{}
	for _, k := range keys {
		raw, err := json.Marshal(d.plans[k])
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	if d.choice.Source != "" {
		raw, err := json.Marshal(tuningRecord{results.TuningKey, d.tuning, d.choice})
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// SetPlans takes what another process chose. A plan of another library version
// is refused when it is built. Plans without a tuning were made without one;
// without any plans the tuning is again what the device was made with.
func (d *Device) SetPlans(raw []json.RawMessage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.untune(); len(raw) > 0 {
		d.tuning, d.choice = Tuning{}, results.TuningChoice{}
	}
	for _, r := range raw {
		if t, c, ok, err := takeTuning(r); err != nil {
			return fmt.Errorf("cuda: a tuning handed over: %w", err)
		} else if ok {
			d.tuning, d.choice = t, c
			continue
		}
		var p Plan
		if err := json.Unmarshal(r, &p); err != nil {
			return fmt.Errorf("cuda: a plan handed over: %w", err)
		}
		d.plans[p.Key] = p
	}
	return nil
}

// Choose picks a plan for every node of a spec that a library can run and that
// has none yet, by timing on GPU 0 or by the libraries' heuristics. It comes
// before the workload is built, since the plans' workspaces are part of it.
// Nodes that no library supports keep the project's own kernels.
func (d *Device) Choose(spec workloads.Spec) error {
	if d.opts.CuDNN == nil && d.opts.CuBLAS == nil {
		return nil
	}
	tuning := d.Tuning()
	w, err := workloads.New(spec, workloads.Target{Lowering: tuning.lowering(*d.opts.Lowering)})
	if err != nil {
		return err
	}
	var todo []*workloads.Bound
	seen := map[string]bool{}
	add := func(b *workloads.Bound) {
		key, err := dnn.Key(b)
		if err != nil || seen[key] {
			return
		}
		seen[key] = true
		if _, ok := d.planOf(b); !ok {
			todo = append(todo, b)
		}
	}
	for id := range workloads.NumSubGraphs {
		for v := range workloads.NumVariants {
			for _, b := range w.Bounds(id, v, workloads.ControlDevice) {
				// The rearranged form comes beside the node's own, which is
				// what runs where no library does it.
				add(b)
				if x := tuning.rearranged(b); x != nil {
					add(x.Bound)
				}
			}
		}
	}
	if len(todo) == 0 {
		return nil
	}
	t := device.NewThread(nil)
	defer t.Stop()
	return t.Do(func() error { return d.choose(todo) })
}

// choose runs on a locked thread of its own.
func (d *Device) choose(todo []*workloads.Bound) (err error) {
	dev, err := d.api.DeviceGet(0)
	if err != nil {
		return err
	}
	ctx, err := d.api.DevicePrimaryCtxRetain(dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.api.DevicePrimaryCtxRelease(dev)) }()
	if err := d.api.CtxSetCurrent(ctx); err != nil {
		return err
	}
	builder, err := dnn.New(d.opts.CuDNN, d.opts.CuBLAS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, builder.Close()) }()
	s, err := newStand(d.api, builder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, b := range todo {
		p, err := d.chooseOne(builder, s, b)
		if errors.Is(err, dnn.ErrUnsupported) {
			continue
		}
		if err != nil {
			return fmt.Errorf("choose a plan for %s: %w", nodeName(b), err)
		}
		d.mu.Lock()
		d.plans[p.Key] = p
		d.mu.Unlock()
	}
	return nil
}

func (d *Device) chooseOne(builder *dnn.Builder, s *stand, b *workloads.Bound) (Plan, error) {
	key, err := dnn.Key(b)
	if err != nil {
		return Plan{}, err
	}
	if d.opts.Heuristic {
		first, err := builder.First(b)
		if err != nil {
			return Plan{}, err
		}
		return Plan{Key: key, Choice: first.Choice(), Source: "heuristic", Offered: 1}, first.Close()
	}
	cands, err := builder.Candidates(b)
	if err != nil {
		return Plan{}, err
	}
	cands = cands[:min(len(cands), candidates)]
	if err := s.load(b); err != nil {
		return Plan{}, err
	}
	choice, timings, err := builder.Pick(b, cands, s.time)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Key: key, Choice: choice, Source: "timed", Offered: len(cands)}
	for _, t := range timings {
		if t.Err == nil && t.Choice.String() == choice.String() {
			p.TimeNs = t.TimeNs
		}
	}
	return p, nil
}

// stand is where plans are timed: a stream, events and operand memory with
// random values.
type stand struct {
	api        *driver.API
	stream     driver.Stream
	state      *dnn.Stream
	begin, end driver.Event
	mem        driver.DevicePtr
	size       int
	ptrs       []uintptr
	workspace  uintptr
	room       int64
}

const (
	standAlign   = 256
	replays      = 5
	perReplay    = 4
	maxStandRoom = dnn.DefaultWorkspace
)

func newStand(api *driver.API, builder *dnn.Builder) (_ *stand, err error) {
	s := &stand{api: api}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.stream, err = api.StreamCreate(driver.StreamNonBlocking); err != nil {
		return nil, err
	}
	if s.state, err = builder.NewStream(uintptr(s.stream)); err != nil {
		return nil, err
	}
	for _, e := range []*driver.Event{&s.begin, &s.end} {
		if *e, err = api.EventCreate(driver.EventDefault); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stand) close() error {
	var errs []error
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	for _, e := range []driver.Event{s.begin, s.end} {
		if e != 0 {
			errs = append(errs, s.api.EventDestroy(e))
		}
	}
	if s.mem != 0 {
		errs = append(errs, s.api.MemFree(s.mem))
	}
	if s.stream != 0 {
		errs = append(errs, s.api.StreamDestroy(s.stream))
	}
	return errors.Join(errs...)
}

// load makes room for a node's operands and a workspace, and fills the room
// with random halves in [-1, 1) or, for FP32, floats made of such halves:
// zeros would be computed faster than values.
func (s *stand) load(b *workloads.Bound) error {
	s.ptrs = nil
	total := 0
	for _, x := range slices.Concat(b.In, b.Out) {
		s.ptrs = append(s.ptrs, uintptr(total))
		total += (int(x.Region.Bytes) + standAlign - 1) &^ (standAlign - 1)
	}
	need := total + maxStandRoom
	if need > s.size {
		if s.mem != 0 {
			if err := s.api.MemFree(s.mem); err != nil {
				return err
			}
			s.mem = 0
		}
		var err error
		if s.mem, err = s.api.MemAlloc(need); err != nil {
			return err
		}
		s.size = need
		if err := s.fill(); err != nil {
			return err
		}
	}
	for i := range s.ptrs {
		s.ptrs[i] += uintptr(s.mem)
	}
	s.workspace, s.room = uintptr(s.mem)+uintptr(total), maxStandRoom
	return nil
}

func (s *stand) fill() error {
	rng := rand.New(rand.NewPCG(1, 2))
	chunk := make([]byte, 1<<20)
	for i := 0; i < len(chunk); i += 2 {
		h := workloads.ToHalf(2*rng.Float32() - 1)
		chunk[i], chunk[i+1] = byte(h), byte(h>>8)
	}
	for at := 0; at < s.size; at += len(chunk) {
		n := min(len(chunk), s.size-at)
		if at == 0 {
			if err := s.api.MemcpyHtoD(s.mem, chunk[:n]); err != nil {
				return err
			}
			continue
		}
		if err := s.api.MemcpyDtoD(s.mem+driver.DevicePtr(at), s.mem, n); err != nil {
			return err
		}
	}
	return s.api.CtxSynchronize()
}

// time is the GPU time of one execution: the median over replays of a graph
// that holds a few. A plan whose single execution takes far longer than the
// best so far is not looked at more closely.
func (s *stand) time(p *dnn.Plan, shortest float64) (ns float64, err error) {
	if p.Workspace() > s.room {
		return 0, fmt.Errorf("a workspace of %d bytes: %w", p.Workspace(), dnn.ErrUnsupported)
	}
	x, err := p.Bind(s.ptrs, s.workspace)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Submit(s.state); err != nil { // what is lazy happens here
		return 0, err
	}
	if err := s.api.StreamSynchronize(s.stream); err != nil {
		return 0, err
	}
	once, err := s.span(func() error { return x.Submit(s.state) })
	if err != nil || once > 4*shortest+launchNs {
		return once, err
	}
	exec, err := s.capture(x)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.api.GraphExecDestroy(exec)) }()
	var all []float64
	for i := range replays + 1 {
		ns, err := s.span(func() error { return s.api.GraphLaunch(exec, s.stream) })
		if err != nil {
			return 0, err
		}
		if i > 0 {
			all = append(all, ns/perReplay)
		}
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// launchNs is more than what a launch adds to a single execution.
const launchNs = 50e3

// span is the GPU's time between events around what f submits.
func (s *stand) span(f func() error) (ns float64, err error) {
	for _, step := range []func() error{
		func() error { return s.api.EventRecord(s.begin, s.stream) }, f,
		func() error { return s.api.EventRecord(s.end, s.stream) },
		func() error { return s.api.StreamSynchronize(s.stream) },
	} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	ms, err := s.api.EventElapsedMs(s.begin, s.end)
	return float64(ms) * 1e6, err
}

// capture records a few executions. A failure ends the capture.
func (s *stand) capture(x *dnn.Exec) (driver.GraphExec, error) {
	if err := s.api.StreamBeginCapture(s.stream, driver.CaptureThreadLocal); err != nil {
		return 0, err
	}
	var failed error
	for range perReplay {
		if failed = x.Submit(s.state); failed != nil {
			break
		}
	}
	g, err := s.api.StreamEndCapture(s.stream)
	if failed != nil || err != nil {
		if err == nil {
			err = s.api.GraphDestroy(g)
		}
		return 0, errors.Join(failed, err)
	}
	exec, err := s.api.GraphInstantiate(g, 0)
	return exec, errors.Join(err, s.api.GraphDestroy(g))
}

// build makes the plan of a key once a rank.
func (r *rank) build(b *workloads.Bound, p Plan) (*dnn.Plan, error) {
	if plan := r.built[p.Key]; plan != nil {
		return plan, nil
	}
	if r.builder == nil {
		return nil, errors.New("the plan was chosen after the group was opened")
	}
	plan, err := r.builder.Build(b, p.Choice)
	if err != nil {
		return nil, err
	}
	r.built[p.Key] = plan
	return plan, nil
}

// libraryStream is the libraries' state for a stream, or a second one for what
// may run beside the stream's other plans.
func (r *rank) libraryStream(s workloads.Stream, beside bool) (*dnn.Stream, error) {
	at := &r.states[s]
	if beside {
		at = &r.beside[s]
	}
	if *at == nil {
		state, err := r.builder.NewStream(uintptr(r.streams[s]))
		if err != nil {
			return nil, err
		}
		*at = state
	}
	return *at, nil
}

package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/capture"
	"github.com/tech-renaissance/trbench/eager"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Executor is one configuration of a session. It is used from the session's
// goroutine.
type Executor struct {
	s       *Session
	key     results.ConfigurationKey
	runners []walk.Runner
	set     *capture.Set // nil for eager
	// launcher submits its operators; empty if the group has no choice.
	launcher string
	// replays are graph launches of all ranks until the last call of Clocks,
	// submitted the steps since then; counts are of one rank over the steps
	// between the last two calls.
	replays   int64
	submitted int
	outer     []time.Duration // of each rank in Submit, since the last call of Clocks
	segments  int64           // of a rank in it
	counts    walk.Counts
	counted   int
}

var _ bench.Executor = (*Executor)(nil)

// Executor prepares a configuration, or returns the one prepared before. Its
// captures are shared with configurations that differ in joins alone. Memory
// is as before when it returns.
func (s *Session) Executor(k results.ConfigurationKey) (*Executor, error) {
	if x := s.made[k]; x != nil {
		return x, nil
	}
	cfg, err := parseKey(k)
	if err != nil {
		return nil, err
	}
	x := &Executor{s: s, key: k, runners: make([]walk.Runner, s.group.Ranks())}
	if x.launcher, err = s.launcherOf(k); err != nil {
		return nil, err
	}
	if k.Mode != "eager" {
		if x.set, err = s.capture(k.Mode, cfg.Control); err != nil {
			return nil, err
		}
	}
	err = s.each(func(r device.Rank) (err error) {
		i := r.ID()
		var l walk.Launcher
		switch k.Mode {
		case "step":
			x.runners[i], err = x.set.Runner(r, s.feeders[i])
			return err
		case "graph":
			l = x.set.Launcher(i)
		default:
			l = &eager.Launcher{Table: s.tables[i], Control: cfg.Control, Dispatch: time.Duration(k.DispatchNs)}
		}
		if s.opts.Inject != nil {
			if l, err = slow(l, *s.opts.Inject); err != nil {
				return err
			}
		}
		x.runners[i], err = walk.NewWalker(r, s.tables[i], cfg, l, s.feeders[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	s.made[k] = x
	s.order = append(s.order, x)
	return x, nil
}

func (s *Session) capture(mode string, control workloads.Control) (*capture.Set, error) {
	k := setKey{capture.Graph, control}
	if mode == "step" {
		k.mode = capture.Step
	}
	if set := s.sets[k]; set != nil {
		return set, nil
	}
	var set *capture.Set
	err := s.await(func() (err error) {
		set, err = capture.Prepare(s.group, s.w, s.tables, capture.Config{Mode: k.mode, Control: control, Feeders: s.feeders})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.sets[k] = set
	return set, nil
}

// parseKey checks a configuration against what can be run.
func parseKey(k results.ConfigurationKey) (cfg walk.Config, err error) {
	bad := func(why string) (walk.Config, error) {
		return cfg, fmt.Errorf("configuration %s: %s", k, why)
	}
	switch k.Mode {
	case "eager", "graph", "step":
	default:
		return bad("unknown mode; known: eager, graph, step")
	}
	switch k.Sync {
	case "event":
		cfg.Sync = walk.SyncEvent
	case "host":
		cfg.Sync = walk.SyncHost
	case "inside":
		cfg.Sync = walk.SyncInside
	default:
		return bad("unknown sync; known: event, host, inside")
	}
	switch k.Control {
	case "device":
	case "host":
		cfg.Control = workloads.ControlHost
	default:
		return bad("unknown control; known: device, host")
	}
	switch {
	case (k.Mode == "step") != (cfg.Sync == walk.SyncInside):
		return bad("mode step joins inside its graph, the others by event or host")
	case k.Mode == "step" && cfg.Control == workloads.ControlHost:
		return bad("mode step has device control only")
	case k.DispatchNs < 0 || k.DispatchNs > 0 && k.Mode != "eager":
		return bad("dispatch time is burnt before eager submissions only, and is not negative")
	}
	return cfg, nil
}

// Key is the configuration.
func (x *Executor) Key() results.ConfigurationKey { return x.key }

// Set is what the configuration captured, nil for eager.
func (x *Executor) Set() *capture.Set { return x.set }

// StepSegments are what a timed step of a variant submits. The last batch of
// an epoch transfers no next one, so a step on it begins the next epoch as
// well: each such step is an epoch of its own.
func StepSegments(v workloads.Variant) []workloads.Segment {
	switch {
	case v.Val():
		return []workloads.Segment{{Phase: workloads.ValBatch, Variant: v}}
	case v.Last():
		return []workloads.Segment{{Phase: workloads.TrainStep, Variant: v}, beginSegment(v)}
	}
	return []workloads.Segment{{Phase: workloads.TrainStep, Variant: v}}
}

// readClock is the median cost of reading the clock that steps are timed with.
func readClock() time.Duration {
	const batches, reads = 15, 64
	var each []time.Duration
	for range batches {
		begin := walk.Now()
		for range reads - 1 {
			walk.Now()
		}
		each = append(each, (walk.Now()-begin)/reads)
	}
	slices.Sort(each)
	return each[batches/2]
}

// beginSegment begins what steps of a variant are part of: an epoch or a
// validation.
func beginSegment(v workloads.Variant) workloads.Segment {
	if v.Val() {
		return workloads.Segment{Phase: workloads.ValBegin, Variant: v}
	}
	return workloads.Segment{Phase: workloads.EpochBegin, Variant: v}
}

// Submit runs steps of the timed variant, halves alternating, from where the
// executor stands. It returns when all ranks have submitted.
func (x *Executor) Submit(steps int) error {
	x.submitted += steps
	step := x.s.step
	x.segments += int64(steps * len(step))
	if x.outer == nil {
		x.outer = make([]time.Duration, len(x.runners))
	}
	return x.eachRank(func(rank int, r walk.Runner) error {
		// What a step left out of the caches is fetched before the clock
		// begins, not between it and the step's own: where the rank stands,
		// what is next, the way to Run and its clock. On two CPU cores a step
		// otherwise lost 300 to 550 ns of 20 us there.
		p, next := r.Position(), step[0]
		r.Ready()
		if err := submitSteps(r, step, next, p, 0); err != nil {
			return err
		}
		begin := walk.Now()
		err := submitSteps(r, step, next, p, steps)
		x.outer[rank] += walk.Now() - begin
		return err
	})
}

// submitSteps submits steps of one rank, from a position and the first segment.
func submitSteps(r walk.Runner, step []workloads.Segment, seg workloads.Segment, p walk.Position, n int) error {
	for i := range n {
		if i > 0 {
			p = r.Position()
		}
		for j := range step {
			if i+j > 0 {
				seg = step[j]
			}
			if seg.Phase != workloads.EpochBegin {
				seg.Half = p.Half
				seg.First = seg.Phase == workloads.ValBatch && p.First
			}
			if err := r.Run(seg); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run submits segments on all ranks.
func (x *Executor) Run(segments ...workloads.Segment) error {
	return x.each(func(r walk.Runner) error {
		for _, seg := range segments {
			if err := r.Run(seg); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *Executor) each(f func(walk.Runner) error) error {
	return x.eachRank(func(_ int, r walk.Runner) error { return f(r) })
}

// eachRank runs f on every rank. After a failure all ranks are drained, so that
// none is left waiting for one that gave up, and what they report follows the
// first error.
func (x *Executor) eachRank(f func(int, walk.Runner) error) error {
	if err := x.s.use(x.launcher); err != nil {
		return err
	}
	err := x.s.each(func(r device.Rank) error { return f(r.ID(), x.runners[r.ID()]) })
	if err == nil {
		return nil
	}
	if x.s.stuck != nil {
		return err
	}
	return errors.Join(err, x.Wait())
}

// Wait drains all ranks.
func (x *Executor) Wait() error {
	return x.s.each(func(r device.Rank) error { return x.runners[r.ID()].Drain() })
}

// Begin starts an epoch, or a validation, of the timed variant and waits. Its
// own launches count as none of a step's.
func (x *Executor) Begin() error {
	if err := x.Run(beginSegment(x.s.opts.Timed)); err != nil {
		return err
	}
	if err := x.Wait(); err != nil {
		return err
	}
	x.submitted = 0
	x.Clocks()
	return nil
}

// Skipped counts the steps since the session was restored that changed no
// weights: a session begins with none. All ranks skip the same ones.
func (x *Executor) Skipped() (int64, error) {
	sc, err := x.s.Scalars(0)
	return int64(sc.Skipped), err
}

// Rehearse runs [Script] over the prepared variants and waits.
func (x *Executor) Rehearse(steps int) error {
	if err := x.Run(Script(x.s.opts.Variants, steps)...); err != nil {
		return err
	}
	return x.Wait()
}

// Clocks returns and resets every rank's clocks. The ranks are not submitting.
func (x *Executor) Clocks() []bench.Clocks {
	out := make([]bench.Clocks, len(x.runners))
	for i, r := range x.runners {
		st := r.Stats()
		r.ResetStats()
		out[i] = bench.Clocks{Submit: st.Submit, SyncWait: st.SyncWait, Host: st.Host}
		if x.outer != nil {
			out[i].Outer, x.outer[i] = x.outer[i], 0
			out[i].Reads = x.s.readClock * time.Duration(x.segments+1)
		}
		x.replays += st.Counts.Graph
		if i == 0 && x.submitted > 0 {
			x.counts, x.counted = st.Counts, x.submitted
		}
	}
	x.submitted, x.segments = 0, 0
	return out
}

// Counts are those of the last steps between two calls of Clocks, per step.
// Kernels and graph nodes are the captured twin's: this configuration's own
// graphs or, for eager, those of a captured configuration of the session with
// the same control, since host control leaves a kernel out; unknown if there
// is none. They are of all that a timed step submits, as the launches are; see
// [StepSegments].
func (x *Executor) Counts() results.Counts {
	var c results.Counts
	if n, l := int64(x.counted), x.counts; n > 0 {
		c.Launches = results.Launches{Host: results.Count(l.Host / n), Graph: results.Count(l.Graph / n),
			Copy: results.Count(l.Copy / n), Sync: results.Count(l.Sync / n)}
	}
	set := x.set
	for _, other := range x.s.order {
		if set == nil && other.key.Control == x.key.Control {
			set = other.set
		}
	}
	if set == nil {
		return c
	}
	c.GraphNodes = map[string]int64{}
	for _, seg := range x.s.step {
		for kind, n := range set.Nodes(seg) {
			c.GraphNodes[kind] += int64(n)
		}
	}
	c.Kernels = results.Count(c.GraphNodes["kernel"])
	if x.set != nil {
		c.Graphs = x.graphs()
	}
	return c
}

// graphs are those that a timed step launches, on rank 0.
func (x *Executor) graphs() (out []results.CapturedGraph) {
	for _, seg := range x.s.step {
		for _, g := range x.set.Graphs(seg) {
			shown := results.CapturedGraph{Name: g.Name, Nodes: map[string]int64{}, Edges: g.Info.Edges,
				WidestSection: g.Info.WidestSection, CriticalPath: g.Info.CriticalPath}
			for kind, n := range g.Info.Nodes {
				shown.Nodes[kind] = int64(n)
			}
			out = append(out, shown)
		}
	}
	return out
}

// Costs are the one-off costs by phase, in host time over all ranks, with the
// memory of rank 0's device around each where it says: preparing
// the operators, which all configurations share, then the capture's phases.
func (x *Executor) Costs() []results.Phase {
	out := []results.Phase{phase("prepare_operators", x.s.tableTime, x.s.tableMemory)}
	if x.set != nil {
		for _, p := range x.set.Phases() {
			out = append(out, phase(p.Name, p.Time, p.Memory))
		}
	}
	return out
}

func phase(name string, took time.Duration, m *capture.PhaseMemory) results.Phase {
	p := results.Phase{Phase: name, Ns: took.Nanoseconds()}
	if m != nil {
		p.Memory = []results.PhaseMemory{{BeforeBytes: m.Before, AfterBytes: m.After}}
	}
	return p
}

// Captures counts over all ranks, and resets nothing. Replays are those of the
// first replay, the check, the warm-up and all that was timed since. Nothing is
// captured twice: a session's addresses never move. The ranks are not
// submitting.
func (x *Executor) Captures() results.Captures {
	if x.set == nil {
		return results.Captures{}
	}
	n := int64(x.set.Captured() * len(x.runners))
	replays := n + x.replays
	for _, r := range x.runners {
		replays += r.Stats().Counts.Graph
	}
	return results.Captures{Captures: n, Replays: replays}
}

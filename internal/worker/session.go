package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/capture"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Options open a session.
type Options struct {
	// Variants are prepared; Timed, one of them, is what Submit runs.
	Variants []workloads.Variant
	Timed    workloads.Variant
	// Seed gives the weights.
	Seed uint64
	// Source fills the batches.
	Source data.Source
	// Feeder, if set, replaces Source: the feeder of each rank.
	Feeder func(rank int) walk.Feeder
	// StallAfter is how long no rank may make progress, in submissions or in
	// operators, before a run is given up with a diagnosis; 0 means 5 minutes.
	StallAfter time.Duration
	// Context ends waiting early; nil never does. What the ranks are at then
	// goes on for a moment; if it takes longer, the session is abandoned and
	// closes itself once they are done.
	Context context.Context
	// Tool, if there is one, is shown what is submitted and captured, and the
	// names of threads, devices and streams.
	Tool *nvtx.Client
	// Inject slows a sub-graph of the eager and graph configurations; nil none.
	Inject *results.Injection
	// Phases, if set, are told what opening takes.
	Phases *bench.Phases
}

// graceAfterCancel is how long a cancelled session waits for its ranks.
const graceAfterCancel = time.Second

// Session is one cell opened on a device. It is used from one goroutine, which
// is not a rank's.
type Session struct {
	w       *workloads.Workload
	group   device.Group
	opts    Options
	tables  []*walk.Table
	feeders []walk.Feeder
	kept    []*walk.Snapshot
	sets    map[setKey]*capture.Set
	made    map[results.ConfigurationKey]*Executor
	// launcher is who submits operators now, where the group has a choice.
	launcher string
	order    []*Executor
	// tableTime is what preparing the operators took, tableMemory what was in use
	// around it.
	tableTime   time.Duration
	tableMemory *capture.PhaseMemory
	step        []workloads.Segment // what a timed step submits
	// readClock is what reading the clock that steps are timed with takes.
	readClock time.Duration
	// traces are what each rank's thread notes while steps are recorded, nil
	// elsewhere.
	traces []*stepTrace
	// calls are run by one goroutine, which ends with the channel, and their
	// errors come back in ended. stall ticks while the session is open.
	calls chan func() error
	ended chan error
	stall *time.Ticker
	// stuck is why the ranks were given up, running what they never finished:
	// a diagnosis or a cancellation. They cannot be used after it.
	stuck     error
	abandoned <-chan error // ends when they are done after all
}

// setKey names what captures can be shared by: how streams are joined between
// graphs is no part of them.
type setKey struct {
	mode    capture.Mode
	control workloads.Control
}

// Open opens the device, fills the arenas, prepares every operator and takes
// the first snapshot. The caller closes the session.
func Open(dev device.Device, w *workloads.Workload, o Options) (_ *Session, err error) {
	if len(o.Variants) == 0 {
		return nil, errors.New("worker: no variant to prepare")
	}
	if o.StallAfter == 0 {
		o.StallAfter = 5 * time.Minute
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Feeder == nil {
		if o.Source == nil {
			return nil, errors.New("worker: neither a data source nor a feeder")
		}
		o.Feeder = func(rank int) walk.Feeder { return sourceFeeder(w, o.Source, rank) }
	}
	o.Phases.Begin(results.PhaseOpenDevice)
	g, err := dev.Open(w)
	if err != nil {
		return nil, fmt.Errorf("open device %s for %s batch %d on %d ranks: %w", dev.Name(), w.Spec.Model, w.Spec.Batch, w.Spec.Ranks, err)
	}
	n := g.Ranks()
	s := &Session{
		w: w, group: g, opts: o,
		tables: make([]*walk.Table, n), feeders: make([]walk.Feeder, n), kept: make([]*walk.Snapshot, n),
		sets: map[setKey]*capture.Set{}, made: map[results.ConfigurationKey]*Executor{},
		step: StepSegments(o.Timed), readClock: readClock(), traces: make([]*stepTrace, n),
		calls: make(chan func() error), ended: make(chan error, 1), stall: time.NewTicker(o.StallAfter),
	}
	if l, ok := g.(device.Launchers); ok {
		s.launcher = l.Launchers()[0]
	}
	go func() {
		for f := range s.calls {
			s.ended <- f()
		}
	}()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	o.Phases.Begin(results.PhasePrepareOperators)
	for i := range n {
		s.feeders[i] = s.feeding(i, o.Feeder(i))
	}
	if err := s.each(func(r device.Rank) error { return w.Init(o.Seed, r.Write) }); err != nil {
		return nil, fmt.Errorf("initialise the arena: %w", err)
	}
	s.tableMemory, err = capture.MemoryAround(g, func() error {
		begin := time.Now()
		defer func() { s.tableTime = time.Since(begin) }()
		return s.each(func(r device.Rank) (err error) {
			s.tables[r.ID()], err = walk.Prepare(r, w, o.Variants)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if err := s.show(); err != nil {
		return nil, err
	}
	// From here on an operator that asks for memory the plan does not have
	// would work on addresses no graph knows.
	g.Seal()
	return s, s.Snapshot()
}

// sourceFeeder fills a half with a whole batch, also where the variant uses
// only its beginning: so a batch's number means the same images in all
// variants.
func sourceFeeder(w *workloads.Workload, src data.Source, rank int) walk.Feeder {
	batch, labels := w.Spec.Batch, w.Known.LabelsOffset
	return func(v workloads.Variant, _ workloads.Half, index int64, dst []byte) error {
		_, side := w.Shape(v)
		split := data.Train
		if v.Val() {
			split = data.Val
		}
		src.Fill(split, rank, w.Spec.Ranks, int(index), batch, side, dst[:batch*side*side*3], dst[labels:labels+int64(batch)*4])
		return nil
	}
}

// Workload is what the session trains.
func (s *Session) Workload() *workloads.Workload { return s.w }

// Group is the session's ranks, for tests and for verify.
func (s *Session) Group() device.Group { return s.group }

// Table is rank 0's table; all ranks' have the same size.
func (s *Session) Table() *walk.Table { return s.tables[0] }

// Snapshot keeps what every rank's arena and pinned halves hold now, and where
// the executors are in their data is forgotten: after Restore they begin anew.
func (s *Session) Snapshot() error {
	return s.each(func(r device.Rank) (err error) {
		if err := r.SyncAll(); err != nil {
			return err
		}
		s.kept[r.ID()], err = walk.TakeSnapshot(r, s.w)
		return err
	})
}

// Restore brings every rank back to the snapshot, and every executor to the
// first batch.
func (s *Session) Restore() error {
	return s.each(func(r device.Rank) error {
		if err := r.SyncAll(); err != nil {
			return err
		}
		for _, x := range s.order {
			x.runners[r.ID()].SetPosition(walk.Position{})
		}
		return s.kept[r.ID()].Restore(r)
	})
}

// Scalars reads a rank's scalars. The session is drained.
func (s *Session) Scalars(rank int) (sc workloads.Scalars, err error) {
	err = s.group.Rank(rank).Do(func() error {
		r, region := s.group.Rank(rank), s.scalarsRegion()
		buf := make([]byte, region.Bytes)
		if err := r.Read(region, buf); err != nil {
			return err
		}
		sc = workloads.DecodeScalars(buf)
		return nil
	})
	return sc, err
}

// WriteScalar sets one word of every rank's scalars to the given bits. The
// session is drained.
func (s *Session) WriteScalar(word int, bits uint32) error {
	region := s.scalarsRegion()
	region.Off, region.Bytes = region.Off+int64(word)*4, 4
	return s.each(func(r device.Rank) error {
		return r.Write(region, binary.LittleEndian.AppendUint32(nil, bits))
	})
}

func (s *Session) scalarsRegion() workloads.Region {
	region := s.w.Tensor(s.w.Known.Scalars).Region
	region.Bytes = workloads.ScalarWords * 4
	return region
}

// each runs f on every rank; see await.
func (s *Session) each(f func(device.Rank) error) error {
	return s.await(func() error { return s.group.Each(f) })
}

// await runs f, which keeps the ranks busy, and gives up on it with a
// diagnosis if nothing moves for too long (neither submissions nor the
// operators that streams ran last), or if the session is cancelled. It is part
// of all that is timed, so it makes nothing and asks nothing until a stall is
// due.
func (s *Session) await(f func() error) error {
	if s.stuck != nil {
		return s.stuck
	}
	if s.calls == nil {
		return f() // it is closed, and f will say so
	}
	s.calls <- f
	giveUp := func(why error) error {
		s.stuck, s.abandoned = why, s.ended
		return why
	}
	last := "" // not asked yet; what a tick before this call meant is not known
	for {
		select {
		case err := <-s.ended:
			return err
		case <-s.stall.C:
			now := s.progress()
			if now == last {
				return giveUp(&StallError{After: s.opts.StallAfter, Ranks: s.lastOps()})
			}
			last = now
			s.stall.Reset(s.opts.StallAfter)
		case <-s.opts.Context.Done():
			select {
			case err := <-s.ended:
				return err
			case <-time.After(graceAfterCancel):
				return giveUp(context.Cause(s.opts.Context))
			}
		}
	}
}

// progress changes whenever some rank submitted a segment or began another
// operator.
func (s *Session) progress() string {
	n := int64(0)
	for _, x := range s.order {
		for _, r := range x.runners {
			n += r.Progress()
		}
	}
	return fmt.Sprint(n, s.lastOps())
}

func (s *Session) lastOps() []string {
	out := make([]string, s.group.Ranks())
	for i := range out {
		out[i] = fmt.Sprint(s.group.Rank(i).LastOp())
	}
	return out
}

// StallError says that the ranks stopped making progress.
type StallError struct {
	After time.Duration
	Ranks []string // the operator each stream ran last, by rank
}

func (e *StallError) Error() string {
	msg := fmt.Sprintf("no rank made progress for %v; last operators:", e.After)
	for i, l := range e.Ranks {
		msg += fmt.Sprintf(" rank %d %s", i, l)
	}
	return msg
}

// Close releases graphs and the group. It returns the first failure. A session
// that was given up closes itself when what its ranks were at has ended, if it
// ever does; waiting for it would be to get stuck as well.
func (s *Session) Close() error {
	s.stall.Stop()
	if s.stuck != nil {
		done := s.abandoned
		s.abandoned = nil
		if done != nil {
			go func() {
				<-done
				close(s.calls)
				_ = s.group.Close() // releases graphs as well; the failure is known
			}()
		}
		return nil
	}
	if s.calls != nil {
		close(s.calls)
		s.calls = nil
	}
	var errs []error
	for _, set := range s.sets {
		errs = append(errs, set.Close())
	}
	return errors.Join(append(errs, s.group.Close())...)
}

// benchSession is a session as bench sees it.
type benchSession struct{ *Session }

func (b benchSession) Executor(k results.ConfigurationKey) (bench.Executor, error) {
	x, err := b.Session.Executor(k)
	if err != nil {
		return nil, err
	}
	return b.asBench(x), nil
}

// Bench returns the session as the harness drives it.
func (s *Session) Bench() bench.Session { return benchSession{s} }

// Check runs the reference, eager/event with device control, and every given
// configuration for the given steps and compares what they leave behind. See
// [bench.Check].
func (s *Session) Check(ctx context.Context, keys []results.ConfigurationKey, steps int) (results.Verify, error) {
	return bench.Check(ctx, s.Bench(), Reference(keys), keys, steps)
}

// Reference is the configuration that others are compared with: eager/event
// with device control and nothing burnt, by the project's own launcher.
func Reference(keys []results.ConfigurationKey) results.ConfigurationKey {
	k := results.DefaultConfigurationKey()
	if len(keys) > 0 {
		k.Ranks = keys[0].Ranks
	}
	own := func(have results.ConfigurationKey) bool { return !have.SecondLauncher() }
	if i := slices.IndexFunc(keys, own); i >= 0 {
		k.Launcher = keys[i].Launcher
	}
	return k
}

// launcherOf is who submits what a configuration launches: empty if the group has
// no choice.
func (s *Session) launcherOf(k results.ConfigurationKey) (string, error) {
	var have []string
	if g, ok := s.group.(device.Launchers); ok {
		have = g.Launchers()
	}
	switch {
	case !k.SecondLauncher() && len(have) == 0:
		return "", nil
	case !k.SecondLauncher():
		return have[0], nil
	case k.Mode != "eager":
		return "", fmt.Errorf("configuration %s: launcher %s submits eagerly only", k, k.Launcher)
	case !slices.Contains(have, k.Launcher):
		return "", fmt.Errorf("configuration %s: the device has no launcher %s", k, k.Launcher)
	}
	return k.Launcher, nil
}

// use makes a launcher the one that submits. It has something to do only when
// configurations alternate, which is outside timed windows.
func (s *Session) use(launcher string) error {
	if launcher == s.launcher {
		return nil
	}
	if err := s.await(func() error { return s.group.(device.Launchers).UseLauncher(launcher) }); err != nil {
		return err
	}
	s.launcher = launcher
	return nil
}

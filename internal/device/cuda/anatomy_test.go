package cuda

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// tune is a way to run the same operators.
type tune struct {
	name string
	o    Tuning
}

// tunes are in an order in which what might hang comes last.
var tunes = []tune{
	{"base", Tuning{}},
	{"fills", Tuning{FillKernels: true}},
	{"nodes", Tuning{FillKernels: true, CopyKernels: true}},
	{"nodes+pdl", Tuning{FillKernels: true, CopyKernels: true, Dependent: true}},
	{"nodes+serial+pdl", Tuning{FillKernels: true, CopyKernels: true, Edges: EdgesSerial, Dependent: true}},
	{"nodes+hazards+pdl", Tuning{FillKernels: true, CopyKernels: true, Edges: EdgesHazards, Dependent: true}},
	{"nodes+hazards+one+pdl", Tuning{FillKernels: true, CopyKernels: true, Edges: EdgesHazards, OneKernelNorm: true, Dependent: true}},
	{"fills+pdl", Tuning{FillKernels: true, Dependent: true}},
	{"fills+serial+pdl", Tuning{FillKernels: true, Edges: EdgesSerial, Dependent: true}},
	{"fills+hazards", Tuning{FillKernels: true, Edges: EdgesHazards}},
	{"fills+hazards+pdl", Tuning{FillKernels: true, Edges: EdgesHazards, Dependent: true}},
	{"fills+one+pdl", Tuning{FillKernels: true, OneKernelNorm: true, Dependent: true}},
	{"fills+hazards+one+pdl", Tuning{FillKernels: true, Edges: EdgesHazards, OneKernelNorm: true, Dependent: true}},
	{"join", Tuning{FusedJoin: true}},
	{"mask", Tuning{NormMask: true}},
	{"join+mask", Tuning{FusedJoin: true, NormMask: true}},
	{"stem", Tuning{SpaceToDepth: true}},
	{"join+mask+stem", Tuning{FusedJoin: true, NormMask: true, SpaceToDepth: true}},
	{"lean", Tuning{FillKernels: true, FusedJoin: true, NormMask: true, SpaceToDepth: true, Dependent: true}},
	{"lean+serial", Tuning{FillKernels: true, FusedJoin: true, NormMask: true, SpaceToDepth: true, Edges: EdgesSerial, Dependent: true}},
	{"lean+hazards", Tuning{FillKernels: true, FusedJoin: true, NormMask: true, SpaceToDepth: true, Edges: EdgesHazards, Dependent: true}},
	{"lean+one", Tuning{FillKernels: true, FusedJoin: true, NormMask: true, SpaceToDepth: true, OneKernelNorm: true, Dependent: true}},
	{"pdl", Tuning{Dependent: true}},
	{"serial", Tuning{Edges: EdgesSerial}},
	{"serial+pdl", Tuning{Edges: EdgesSerial, Dependent: true}},
	{"hazards", Tuning{Edges: EdgesHazards}},
	{"hazards+pdl", Tuning{Edges: EdgesHazards, Dependent: true}},
	{"one", Tuning{OneKernelNorm: true}},
	{"serial+one+pdl", Tuning{Edges: EdgesSerial, OneKernelNorm: true, Dependent: true}},
	{"hazards+one", Tuning{Edges: EdgesHazards, OneKernelNorm: true}},
	{"hazards+one+pdl", Tuning{Edges: EdgesHazards, OneKernelNorm: true, Dependent: true}},
}

// TestAnatomy prints where a step's time goes; it asserts equal bits and no
// time. TRBENCH_ANATOMY holds cells, "resnet50:64:base,hazards", with names
// above or words of a tuning joined by +, or no names for all tunes; TRBENCH_ANATOMY_OPERATORS the tunes whose operators are
// timed beside base's; TRBENCH_ANATOMY_BUDGET the seconds after which no
// further cell begins. Without TRBENCH_GPU a small net runs on the fake driver.
func TestAnatomy(t *testing.T) {
	cells := strings.Fields(os.Getenv("TRBENCH_ANATOMY"))
	if len(cells) == 0 {
		if onGPU() {
			t.Skip("TRBENCH_ANATOMY is not set")
		}
		if raceDetector {
			t.Skip("TestTunedTrainsAsTheCPU shows the same races")
		}
		cells = []string{"golden-tiny:2:base,hazards+one+pdl"}
	}
	begin := time.Now()
	budget, err := strconv.Atoi(cmp.Or(os.Getenv("TRBENCH_ANATOMY_BUDGET"), "600"))
	must(t, err)
	for _, c := range cells {
		if time.Since(begin) > time.Duration(budget)*time.Second {
			fmt.Println("ANATOMY", c, "NOT RUN: the time is up")
			continue
		}
		t.Run(c, func(t *testing.T) {
			part := strings.Split(c, ":")
			batch, err := strconv.Atoi(part[1])
			must(t, err)
			want := tunes
			if len(part) > 2 {
				want = nil
				for _, n := range strings.Split(part[2], ",") {
					i := slices.IndexFunc(tunes, func(u tune) bool { return u.name == n })
					if i >= 0 {
						want = append(want, tunes[i])
						continue
					}
					o, err := ParseTuning(strings.ReplaceAll(n, "+", ","))
					must(t, err)
					want = append(want, tune{n, o})
				}
			}
			a := &anatomy{T: t, x: newRig(t, nil), cell: part[0] + ":" + part[1]}
			a.spec = workloads.Spec{Model: part[0], Batch: batch, Ranks: 1, Precision: workloads.AMP, Optimizer: workloads.SGD}
			a.cell = strings.ReplaceAll(a.cell, "resnet", "r")
			a.run(want)
		})
	}
}

type anatomy struct {
	*testing.T
	x    *rig
	cell string
	spec workloads.Spec
	dnn  *cudnn.Library
	blas *cublas.Library
}

// tuned is a session of a tune.
type tuned struct {
	tune
	s           *worker.Session
	w           *workloads.Workload
	eager, step *worker.Executor
	equal       bool
	eagerMs     []float64
	stepMs      []float64
	submitUs    []float64
	info        device.GraphInfo
}

func (a *anatomy) say(format string, args ...any) { fmt.Printf("ANATOMY "+format+"\n", args...) }

func (a *anatomy) run(want []tune) {
	var plans []Plan
	if onGPU() {
		var err error
		a.dnn, err = cudnn.Open(cudnn.Options{Path: os.Getenv("TRBENCH_CUDNN")})
		must(a, err)
		a.blas, err = cublas.Open(cublas.Options{Path: os.Getenv("TRBENCH_CUBLAS")})
		must(a, err)
		d := a.device(Options{Tuning: Tuning{SpaceToDepth: true}}) // plans for both
		t := time.Now()
		must(a, d.(*rigged).Choose(a.spec))
		for _, p := range d.(*rigged).plans {
			plans = append(plans, p)
		}
		a.say("%s plans chosen: %d in %.1f s", a.cell, len(plans), time.Since(t).Seconds())
	}
	const room = 95 << 30
	for len(want) > 0 {
		var open []*tuned
		total := int64(0)
		for len(want) > 0 {
			u, bytes := a.open(want[0], plans, total, room)
			if u == nil && bytes > 0 {
				break // the next round
			}
			want = want[1:]
			if u != nil {
				open, total = append(open, u), total+bytes
			}
		}
		a.rounds(open)
		a.table(open)
		for i, u := range open {
			if u.name == "base" {
				a.launches(u)
			}
			if u.name == "base" || slices.Contains(strings.Split(os.Getenv("TRBENCH_ANATOMY_OPERATORS"), ","), u.name) {
				a.operators(u)
			}
			if u.name != "base" && i == len(open)-1 {
				a.launches(u)
			}
		}
		for _, u := range open {
			must(a, u.s.Close())
		}
		if len(want) > 0 && want[0].name != "base" {
			want = append([]tune{tunes[0]}, want...)
		}
	}
}

func (a *anatomy) device(o Options) interface {
	device.Device
} {
	o.CuDNN, o.CuBLAS = a.dnn, a.blas
	return a.x.device(o)
}

// open prepares a tune, or says how many bytes it would take when there is no
// room beside others. A tune that fails is reported and left out.
func (a *anatomy) open(t tune, plans []Plan, used, room int64) (*tuned, int64) {
	d := a.device(Options{Tuning: t.o}).(*rigged)
	for _, p := range plans {
		d.plans[p.Key] = p
	}
	w, err := workloads.New(a.spec, d.Target())
	must(a, err)
	if used > 0 && used+w.ArenaBytes > room {
		return nil, w.ArenaBytes
	}
	u := &tuned{tune: t, w: w}
	fail := func(err error) (*tuned, int64) {
		a.Errorf("%s: %v", t.name, err)
		a.say("%s %s FAILED: %.300v", a.cell, t.name, err)
		return nil, 0
	}
	if u.s, err = worker.Open(d, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull, Seed: 7,
		Source: data.NewRandom(3, w.Classes()), StallAfter: 20 * time.Second}); err != nil {
		return fail(err)
	}
	a.Cleanup(func() { _ = u.s.Close() }) // what a failure left
	if u.eager, err = u.s.Executor(key("eager/event/device")); err != nil {
		return fail(err)
	}
	if u.step, err = u.s.Executor(key("step/inside/device")); err != nil {
		return fail(err)
	}
	v, err := u.s.Check(context.Background(), []results.ConfigurationKey{key("eager/event/device"), key("step/inside/device")}, 3)
	if err != nil {
		return fail(err)
	}
	if u.equal = v.Equal; !u.equal {
		a.Errorf("%s: modes differ: %+v", t.name, v)
	}
	u.info = u.step.Set().Info(worker.StepSegments(workloads.FinalFull)[0])
	return u, w.ArenaBytes
}

// rounds times the tunes in turn, forwards and backwards.
func (a *anatomy) rounds(open []*tuned) {
	block := func(e *worker.Executor, n int) float64 {
		t := time.Now()
		must(a, e.Submit(n), e.Wait())
		return float64(time.Since(t).Nanoseconds()) / float64(n) / 1e6
	}
	count := func(e *worker.Executor) int {
		must(a, e.Begin())
		if !onGPU() {
			return 1
		}
		block(e, 3)
		return min(60, max(3, int(60/block(e, 2))))
	}
	rounds := 6
	if !onGPU() {
		rounds = 2
	}
	for round := range rounds {
		for i := range open {
			u := open[i]
			if round%2 == 1 {
				u = open[len(open)-1-i]
			}
			must(a, u.s.Restore())
			n := count(u.step)
			u.stepMs = append(u.stepMs, block(u.step, n))
			must(a, u.step.Begin())
			for range 15 { // as the harness does: one step to a drained device
				u.step.Clocks()
				must(a, u.step.Submit(1))
				u.submitUs = append(u.submitUs, float64(u.step.Clocks()[0].Submit.Nanoseconds())/1e3)
				must(a, u.step.Wait())
			}
			if round < 3 {
				n = count(u.eager)
				u.eagerMs = append(u.eagerMs, block(u.eager, n))
			}
		}
	}
}

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}

func (a *anatomy) table(open []*tuned) {
	for _, u := range open {
		base := open[0]
		a.say("T1 %-12s %-16s nodes %v edges %d width %d path %d | eager %.3f step %.3f (%.3f..%.3f) ms, x%.3f of %s | submit us med %.1f p90 %.1f max %.1f first %.1f | equal %v, arena %.1f GiB",
			a.cell, u.name, u.info.Nodes, u.info.Edges, u.info.WidestSection, u.info.CriticalPath, quantile(u.eagerMs, .5), quantile(u.stepMs, .5),
			quantile(u.stepMs, 0), quantile(u.stepMs, 1), quantile(u.stepMs, .5)/quantile(base.stepMs, .5), base.name,
			quantile(u.submitUs, .5), quantile(u.submitUs, .9), quantile(u.submitUs, 1), u.submitUs[0], u.equal, float64(u.w.ArenaBytes)/(1<<30))
	}
}

// group is the session's group of the cuda device.
func (u *tuned) rank() *rank { return u.s.Group().(*Group).ranks[0] }

// trainGraphs are the graphs and execs of the two halves' training steps.
func (u *tuned) trainGraphs() (graphs []*graph, execs []*exec) {
	r := u.rank()
	for g := range r.graphs {
		if g.info.Total() == u.info.Total() {
			graphs = append(graphs, g)
		}
	}
	for x := range r.execs {
		if x.info.Total() == u.info.Total() {
			execs = append(execs, x)
		}
	}
	return graphs, execs
}

// launches measures the host time of graph launches, in patterns.
func (a *anatomy) launches(u *tuned) {
	r := u.rank()
	graphs, execs := u.trainGraphs()
	if len(execs) < 2 {
		a.say("%s %s: %d execs of a step", a.cell, u.name, len(execs))
		return
	}
	must(a, r.Do(func() error {
		host := func(x *exec) (float64, error) {
			t := time.Now()
			err := x.Launch(workloads.COMP1, workloads.FinalFull)
			return float64(time.Since(t).Nanoseconds()) / 1e3, err
		}
		drained := func(name string, n int, pick func(i int) *exec, before func(x *exec) error) error {
			var all []float64
			for i := range n {
				x := pick(i)
				if err := r.SyncAll(); err != nil {
					return err
				}
				if before != nil {
					if err := before(x); err != nil {
						return err
					}
				}
				us, err := host(x)
				if err != nil {
					return err
				}
				all = append(all, us)
			}
			a.say("T2 %-12s %-16s %-44s med %6.1f p10 %6.1f p90 %6.1f max %6.1f | first 4: %.1f", a.cell, u.name, name,
				quantile(all, .5), quantile(all, .1), quantile(all, .9), quantile(all, 1), all[:min(4, len(all))])
			return r.SyncAll()
		}
		one := func(x *exec) func(int) *exec { return func(int) *exec { return x } }
		spin := func(d time.Duration) func(*exec) error {
			return func(*exec) error {
				for t := time.Now(); time.Since(t) < d; {
				}
				return nil
			}
		}
		ab := func(i int) *exec { return execs[i%2] }
		upload := func(x *exec) error {
			if err := x.Upload(workloads.COMP1); err != nil {
				return err
			}
			return r.SyncAll()
		}
		n := 40
		if !onGPU() {
			n = 3
		}
		for _, f := range []func() error{
			func() error { return drained("A alone, drained", n, one(execs[0]), nil) },
			func() error { return drained("A B in turn, drained", n, ab, nil) },
			func() error { return drained("A B in turn, uploaded before", n, ab, upload) },
			func() error {
				return drained("A alone, drained, 50 us spun", n, one(execs[0]), spin(50*time.Microsecond))
			},
			func() error { return drained("A B in turn, drained, 1 ms spun", n, ab, spin(time.Millisecond)) },
			func() error {
				return drained("A B in turn, drained, slept 1 ms", n, ab, func(*exec) error { time.Sleep(time.Millisecond); return nil })
			},
			func() error { // queued
				var all []float64
				for i := range 24 {
					us, err := host(ab(i))
					if err != nil {
						return err
					}
					all = append(all, us)
				}
				a.say("T2 %-12s %-16s %-44s %.0f", a.cell, u.name, "A B in turn, queued, each", all)
				return r.SyncAll()
			},
		} {
			if err := f(); err != nil {
				return err
			}
		}
		// The same operators, captured otherwise.
		ops := graphs[0].ops
		noCopy := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.b.Op == workloads.OpCopyIn })
		own := slices.DeleteFunc(slices.Clone(noCopy), func(o *op) bool { return o.library != nil })
		libs := slices.DeleteFunc(slices.Clone(noCopy), func(o *op) bool { return o.library == nil })
		one1 := slices.DeleteFunc(slices.Clone(noCopy), func(o *op) bool { return o.stream != workloads.COMP1 })
		for _, v := range []struct {
			name   string
			ops    []*op
			serial bool
		}{
			{"serial", ops, true}, {"serial, no copy", noCopy, true}, {"serial, no copy, half", noCopy[:len(noCopy)/2], true},
			{"serial, own kernels", own, true}, {"serial, libraries", libs, true}, {"serial, COMP_1 alone", one1, true},
			{"hazards", ops, false}, {"hazards, no copy", noCopy, false}, {"hazards, COMP_1 alone", one1, false},
		} {
			if len(v.ops) == 0 {
				continue
			}
			g, err := r.recapture(v.ops, v.serial)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			x, err := g.Instantiate()
			if err != nil {
				return err
			}
			e := x.(*exec)
			name := fmt.Sprintf("%s (%d nodes, width %d)", v.name, g.info.Total(), g.info.WidestSection)
			if err := upload(e); err != nil {
				return err
			}
			if err := drained(name, n, one(e), nil); err != nil {
				return err
			}
			var ms []float64
			for range 8 {
				us, err := r.gpuTime(func() error { return e.Launch(workloads.COMP1, workloads.FinalFull) })
				if err != nil {
					return err
				}
				ms = append(ms, us/1e3)
			}
			a.say("T2 %-12s %-16s %-44s GPU ms %.3f (%.3f..%.3f)", a.cell, u.name, name, quantile(ms, .5), quantile(ms, 0), quantile(ms, 1))
			if err := cmp.Or(e.Close(), g.Close()); err != nil {
				return err
			}
		}
		return nil
	}))
	must(a, u.s.Restore())
}

// recapture records operators of any streams into one graph.
func (r *rank) recapture(ops []*op, serial bool) (*graph, error) {
	fork, err := r.NewEvent("fork")
	if err != nil {
		return nil, err
	}
	if err := r.BeginCapture(workloads.COMP1, device.CaptureThreadLocal); err != nil {
		return nil, err
	}
	r.cap.edges = &ordering{serial: serial}
	err = r.Record(workloads.COMP1, fork)
	for s := range workloads.NumStreams {
		if err == nil && s != workloads.COMP1 && slices.ContainsFunc(ops, func(o *op) bool { return o.stream == s }) {
			err = r.Wait(s, fork)
		}
	}
	for _, o := range ops {
		if err == nil {
			err = o.Submit(workloads.FinalFull)
		}
	}
	g, end := r.EndCapture(workloads.COMP1)
	if err != nil || end != nil {
		return nil, cmp.Or(err, end)
	}
	return g.(*graph), nil
}

// gpuTime is the GPU's time around what f submits to COMP_1, in microseconds.
// The gate holds the stream until all is queued.
func (r *rank) gpuTime(f func() error) (float64, error) {
	if err := r.Hold(); err != nil {
		return 0, err
	}
	t := r.timer
	err := r.tick(t.begin, clockStream)
	if err == nil {
		err = f()
	}
	if err == nil {
		err = r.tick(t.end, clockStream)
	}
	if _, e := r.Release(); err == nil {
		err = e
	}
	if e := r.SyncAll(); err == nil {
		err = e
	}
	if err != nil {
		return 0, err
	}
	ms, err := r.api.EventElapsedMs(t.begin, t.end)
	return float64(ms) * 1e3, err
}

// bytesPerUs is what copies and fills of large memory reach on an H200.
const bytesPerUs = 4.3e6

// operators times every operator of a step alone: in a graph that holds it a
// few times in a row, so with its operands in the cache as far as they fit, and
// with one node boundary each kernel.
func (a *anatomy) operators(u *tuned) {
	r := u.rank()
	graphs, _ := u.trainGraphs()
	type row struct {
		name       string
		n, kernels int
		us, floor  float64
		biggest    float64
		worst      string
	}
	rows := map[string]*row{}
	var all []string
	total := row{}
	must(a, r.Do(func() error {
		times := 12
		if !onGPU() {
			times = 2
		}
		known := map[string][2]float64{}
		for _, o := range graphs[0].ops {
			id := fmt.Sprint(o.b.Op, o.b.Attr, len(o.b.In), o.b.SubGraph.Info().Stream)
			bytes := int64(0)
			for _, x := range slices.Concat(o.b.In, o.b.Out) {
				id += fmt.Sprint(x.Shape, x.DType)
				bytes += x.Region.Bytes
			}
			k, ok := known[id]
			if !ok {
				many := make([]*op, times)
				for i := range many {
					many[i] = o
				}
				g, err := r.recapture(many, true)
				if err != nil {
					return fmt.Errorf("%s: %w", nodeName(o.b), err)
				}
				x, err := g.Instantiate()
				if err != nil {
					return err
				}
				var us []float64
				for i := range 5 {
					v, err := r.gpuTime(func() error { return x.Launch(workloads.COMP1, workloads.FinalFull) })
					if err != nil {
						return err
					}
					if i > 0 {
						us = append(us, v/float64(times))
					}
				}
				k = [2]float64{quantile(us, .5), float64(g.info.Total()) / float64(times)}
				known[id] = k
				if err := x.Close(); err != nil {
					return err
				}
				if err := g.Close(); err != nil {
					return err
				}
			}
			name := o.b.Op.String()
			if o.b.Attr.Add {
				name += "+add"
			}
			if o.b.Attr.Sum {
				name += "+sum"
			}
			if o.b.SubGraph == workloads.FirstLayerFwdA || o.b.SubGraph == workloads.FirstLayerFwdB || o.b.SubGraph == workloads.FirstLayerBwdA || o.b.SubGraph == workloads.FirstLayerBwdB {
				name = "stem " + name
			}
			w := rows[name]
			if w == nil {
				w = &row{name: name}
				rows[name] = w
			}
			for _, x := range []*row{w, &total} {
				x.n++
				x.kernels += int(k[1] + .5)
				x.us += k[0]
				x.floor += float64(bytes) / bytesPerUs
			}
			if k[0] > w.biggest {
				w.biggest, w.worst = k[0], o.b.Name
			}
			all = append(all, fmt.Sprintf("%s %s %s %s: %.2f us, %.0f nodes, floor %.2f us", a.cell, u.name, nodeName(o.b), shapes(o.b), k[0], k[1], float64(bytes)/bytesPerUs))
		}
		return nil
	}))
	must(a, u.s.Restore())
	for _, l := range all {
		fmt.Println("OPERATOR", l)
	}
	list := make([]*row, 0, len(rows))
	for _, w := range rows {
		list = append(list, w)
	}
	slices.SortFunc(list, func(x, y *row) int { return cmp.Compare(y.us, x.us) })
	total.name = "TOTAL, one after another"
	for _, w := range append(list, &total) {
		a.say("T3 %-12s %-26s %4d ops %4d kernels %9.1f us, floor of bytes %8.1f us, x%.2f; most %.1f %s", a.cell, w.name, w.n, w.kernels, w.us, w.floor, w.us/w.floor, w.biggest, w.worst)
	}
}

func shapes(b *workloads.Bound) string {
	s := fmt.Sprint(b.In[:min(1, len(b.In))])
	if len(b.In) > 0 {
		s = fmt.Sprint(b.In[0].Shape)
	}
	if len(b.Out) > 0 {
		s += "->" + fmt.Sprint(b.Out[0].Shape)
	}
	return s
}

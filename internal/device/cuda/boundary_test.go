package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	harness "github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/cublas"
	"github.com/tech-renaissance/trbench/internal/cuda/cudnn"
	"github.com/tech-renaissance/trbench/internal/cuda/cupti"
	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// TestNodeBoundary prints what a node boundary on the critical path of a step's
// graph takes, with its uncertainty; see [timeline.ReplayedGraph.Boundary]. It
// asserts that records and graph fit together, and no time. TRBENCH_BOUNDARY holds
// cells, "resnet50:64:fills,copies,dependent"; without TRBENCH_GPU a small net runs
// on the fake driver.
func TestNodeBoundary(t *testing.T) {
	cells := strings.Fields(os.Getenv("TRBENCH_BOUNDARY"))
	if !onGPU() {
		cells = []string{"golden-tiny:2:fills,copies", "golden-tiny:2:fills,copies,hazards"}
	} else if len(cells) == 0 {
		t.Skip("TRBENCH_BOUNDARY is not set")
	}
	for _, c := range cells {
		t.Run(c, func(t *testing.T) {
			if raceDetector {
				t.Skip("TestTunedTrainsAsTheCPU shows the same races")
			}
			part := strings.Split(c, ":")
			batch, err := strconv.Atoi(part[1])
			must(t, err)
			tuning, err := ParseTuning(part[2])
			must(t, err)
			b := &boundary{T: t, x: newRig(t, nil), cell: c}
			b.run(workloads.Spec{Model: part[0], Batch: batch, Ranks: 1, Precision: workloads.AMP, Optimizer: workloads.SGD}, tuning)
		})
	}
}

type boundary struct {
	*testing.T
	x    *rig
	cell string
	api  *cupti.API
	r    *rank
	step *worker.Executor
}

func (b *boundary) say(format string, args ...any) {
	fmt.Printf("BOUNDARY "+b.cell+" "+format+"\n", args...)
}

func (b *boundary) run(spec workloads.Spec, tuning Tuning) {
	o := Options{Tuning: tuning}
	var err error
	if onGPU() {
		o.CuDNN, err = cudnn.Open(cudnn.Options{Path: os.Getenv("TRBENCH_CUDNN")})
		must(b, err)
		o.CuBLAS, err = cublas.Open(cublas.Options{Path: os.Getenv("TRBENCH_CUBLAS")})
		must(b, err)
		b.api, err = cupti.Open(cupti.Options{Path: os.Getenv("TRBENCH_CUPTI"), Driver: int(b.x.api.Version())})
		must(b, err)
	} else {
		p := b.x.m.CUPTI()
		lib, err := p.Start(b.x.m)
		must(b, err)
		b.Cleanup(p.Stop)
		b.api, err = cupti.New(lib, int(b.x.api.Version()))
		must(b, err)
	}
	dev := b.x.device(o)
	must(b, dev.Choose(spec))
	w, err := workloads.New(spec, dev.Target())
	must(b, err)
	s, err := worker.Open(dev, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull, Seed: 7,
		Source: data.NewRandom(3, w.Classes()), StallAfter: 20 * time.Second})
	must(b, err)
	defer func() { must(b, s.Close()) }()
	way := []results.ConfigurationKey{key("step/inside/device")}
	_, err = s.Check(context.Background(), way, 2)
	must(b, err)
	b.step, err = s.Executor(way[0])
	must(b, err, b.step.Begin())
	b.r = s.Group().(*Group).ranks[0]

	untraced := b.untraced()
	lengthening, excess, chain := timeline.Lengthening{}, timeline.Lengthening{}, timeline.Corrected{}
	if onGPU() {
		lengthening, excess, chain = b.calibrate()
	}
	info := b.step.Set().Info(worker.StepSegments(workloads.FinalFull)[0])
	b.say("step %.3f ms (%.3f..%.3f) untraced, %d nodes %v, width %d; a record exceeds the work by %d ns (+-%d), a boundary in a chain of one-wave kernels takes %d ns (%d..%d)",
		ms(untraced.Ns), ms(untraced.LowNs), ms(untraced.HighNs), info.Total(), info.Nodes, info.WidestSection, excess.ByNs, excess.UncertaintyNs, chain.Ns, chain.LowNs, chain.HighNs)
	for _, g := range b.trace(info.Total()) {
		path, err := g.g.CriticalPath()
		must(b, err)
		var sums []float64
		for _, run := range g.runs {
			sum := 0.0
			for _, i := range path {
				sum += float64(run[i])
			}
			sums = append(sums, sum)
		}
		path64 := interval(sums)
		longer := g.g.Boundary(path, untraced, (path64.HighNs-path64.LowNs)/2, lengthening)
		raw := g.g.Boundary(path, untraced, (path64.HighNs-path64.LowNs)/2, timeline.Lengthening{})
		got := g.g.Boundary(path, untraced, (path64.HighNs-path64.LowNs)/2, excess)
		if len(path) == 0 || len(path) > len(g.g.Nodes) || got.Boundaries != len(path) {
			b.Errorf("a path of %d nodes, %d boundaries", len(path), got.Boundaries)
		}
		b.say("graph of %d nodes, path %d of depth %d, %.3f ms recorded (%.3f..%.3f over %d replays): beside records less what recording lengthens them a boundary takes %d ns (%d..%d); beside the work %d ns (%d..%d); beside records as they are %d ns (%d..%d), failed %v",
			len(g.g.Nodes), len(path), info.CriticalPath, ms(path64.Ns), ms(path64.LowNs), ms(path64.HighNs), len(g.runs),
			longer.Each().Ns, longer.Each().LowNs, longer.Each().HighNs, got.Each().Ns, got.Each().LowNs, got.Each().HighNs, raw.Each().Ns, raw.Each().LowNs, raw.Each().HighNs, got.Failed)
	}
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// interval is the median with its order interval.
func interval(v []float64) timeline.Corrected {
	m := int64(math.Round(results.Median(v)))
	out := timeline.Corrected{Ns: m, LowNs: m, HighNs: m}
	if i := harness.OrderInterval(v, harness.Level); i != nil {
		out.LowNs, out.HighNs = int64(math.Floor(i.Low)), int64(math.Ceil(i.High))
	}
	return out
}

// untraced is the time of a step with steps queued one behind another.
func (b *boundary) untraced() timeline.Corrected {
	n, blocks := 40, 15
	if !onGPU() {
		n, blocks = 2, 3
	}
	var all []float64
	for i := range 1 + blocks {
		begin := time.Now()
		must(b, b.step.Submit(n), b.step.Wait())
		if i > 0 {
			all = append(all, float64(time.Since(begin).Nanoseconds())/float64(n))
		}
	}
	return interval(all)
}

const (
	chainNodes = 200
	burnCycles = 8000 // some us
)

// chain captures kernels that keep one wave of blocks busy for some cycles.
func (b *boundary) chain(cycles uint64) (driver.GraphExec, error) {
	r := b.r
	stream := r.streams[workloads.COMP1]
	l, _, err := r.layKernel(driver.KernelSpec{Func: r.kernel[kernels.BurnKernel], Name: kernels.BurnKernel, Grid: [3]uint32{132, 1, 1}, Block: [3]uint32{256, 1, 1},
		Stream: stream, Args: (&driver.Args{}).U64(cycles), Attrs: r.attrs})
	if err != nil {
		return 0, err
	}
	if err := r.api.StreamBeginCapture(stream, driver.CaptureThreadLocal); err != nil {
		return 0, err
	}
	var failed error
	for range chainNodes {
		if code := r.api.Submit(l); code != driver.Success && failed == nil {
			failed = r.api.LaunchError(l, code)
		}
	}
	g, err := r.api.StreamEndCapture(stream)
	if err = cmp.Or(failed, err); err != nil {
		return 0, err
	}
	x, err := r.api.GraphInstantiate(g, 0)
	return x, errors.Join(err, r.api.GraphDestroy(g))
}

// calibrate runs the chains without and with recording.
func (b *boundary) calibrate() (lengthening, excess timeline.Lengthening, chain timeline.Corrected) {
	r := b.r
	must(b, r.Do(func() error {
		var execs [2]driver.GraphExec
		var times [2][]float64
		for i := range execs {
			x, err := b.chain(burnCycles * uint64(i+1))
			if err != nil {
				return err
			}
			defer func() { _ = r.api.GraphExecDestroy(x) }()
			execs[i] = x
		}
		launch := func(x driver.GraphExec) func() error {
			return func() error { return r.api.GraphLaunch(x, r.streams[workloads.COMP1]) }
		}
		for round := range 16 {
			for i, x := range execs {
				us, err := r.gpuTime(launch(x))
				if err != nil {
					return err
				}
				if round > 0 {
					times[i] = append(times[i], us*1e3/chainNodes)
				}
			}
		}
		tr, err := b.api.Start(cupti.Config{Kinds: []cupti.Kind{cupti.KindKernel}})
		if err != nil {
			return err
		}
		for range 9 {
			if err := launch(execs[0])(); err != nil {
				return err
			}
			if err := r.SyncAll(); err != nil {
				return err
			}
		}
		var rec cupti.Records
		if err := errors.Join(tr.Drain(&rec), tr.Stop()); err != nil {
			return err
		}
		var means []float64
		for _, run := range launches(&rec) {
			if len(run) != chainNodes {
				return fmt.Errorf("a chain of %d kernels has %d records", chainNodes, len(run))
			}
			slices.SortFunc(run, func(x, y ran) int { return cmp.Compare(x.from, y.from) })
			sum, before := int64(0), int64(0)
			for _, k := range run {
				sum, before = sum+k.to-max(k.from, before), k.to
			}
			means = append(means, float64(sum)/chainNodes)
		}
		once, twice, recorded := interval(times[0]), interval(times[1]), interval(means)
		excess, chain = timeline.RecordExcess(once, twice, recorded)
		lengthening = timeline.Lengthening{ByNs: recorded.Ns - once.Ns, UncertaintyNs: max(recorded.HighNs-recorded.Ns+once.Ns-once.LowNs, recorded.Ns-recorded.LowNs+once.HighNs-once.Ns)}
		b.say("chains of %d: %d ns (%d..%d) a kernel, with twice the work %d ns (%d..%d), recorded %d ns (%d..%d)", chainNodes,
			once.Ns, once.LowNs, once.HighNs, twice.Ns, twice.LowNs, twice.HighNs, recorded.Ns, recorded.LowNs, recorded.HighNs)
		return nil
	}))
	return lengthening, excess, chain
}

// ran is a node's record.
type ran struct {
	node     uint64
	from, to int64
	name     string // of a kernel
}

// launches are the records of graphs' nodes by launch, in the order of launches.
func launches(rec *cupti.Records) (out [][]ran) {
	by := map[uint32][]ran{}
	for _, k := range rec.Kernels {
		if k.Graph != 0 {
			by[k.Correlation] = append(by[k.Correlation], ran{k.Node, k.StartNs, k.EndNs, k.Name})
		}
	}
	for _, k := range rec.Copies {
		if k.Graph != 0 {
			by[k.Correlation] = append(by[k.Correlation], ran{k.Node, k.StartNs, k.EndNs, ""})
		}
	}
	for _, k := range rec.Fills {
		if k.Graph != 0 {
			by[k.Correlation] = append(by[k.Correlation], ran{k.Node, k.StartNs, k.EndNs, ""})
		}
	}
	var order []uint32
	for c := range by {
		order = append(order, c)
	}
	slices.Sort(order)
	for _, c := range order {
		out = append(out, by[c])
	}
	return out
}

// rerun is a graph as some launches of it ran.
type rerun struct {
	g    timeline.ReplayedGraph // with medians
	runs [][]int64              // by launch and node, ns beyond the end of what a node follows
}

// trace records steps and finds the nodes of the step's graphs in the records: a
// node's number grows in the order in which graphs list their nodes, which names
// and edges must bear out. A node counts from when the last of those that it
// follows ended: with programmatic dependent launch it is on the GPU before, and
// waits.
func (b *boundary) trace(total int) []rerun {
	steps := 40
	if !onGPU() {
		steps = 6
	}
	tr, err := b.api.Start(cupti.Config{Kinds: []cupti.Kind{cupti.KindKernel, cupti.KindMemcpy, cupti.KindMemset}})
	must(b, err, b.step.Submit(steps), b.step.Wait())
	var rec cupti.Records
	must(b, tr.Drain(&rec), tr.Stop())

	type known struct {
		names []string
		kinds []driver.NodeType
		edges [][2]int
	}
	var graphs []known
	must(b, b.r.Do(func() error {
		for g := range b.r.graphs {
			if g.info.Total() != total {
				continue
			}
			nodes, err := b.r.api.GraphGetNodes(g.h)
			if err != nil {
				return err
			}
			k := known{}
			at := map[driver.GraphNode]int{}
			for i, n := range nodes {
				kind, err := b.r.api.GraphNodeGetType(n)
				if err != nil {
					return err
				}
				name := ""
				if kind == driver.NodeKernel {
					p, err := b.r.api.GraphKernelNodeGetParams(n)
					if err != nil {
						return err
					}
					if p.Func != 0 {
						if name, err = b.r.api.FuncGetName(p.Func); err != nil {
							return err
						}
					}
				}
				at[n], k.names, k.kinds = i, append(k.names, name), append(k.kinds, kind)
			}
			edges, err := b.r.api.GraphGetEdges(g.h)
			if err != nil {
				return err
			}
			for _, e := range edges {
				k.edges = append(k.edges, [2]int{at[e.From], at[e.To]})
			}
			graphs = append(graphs, k)
		}
		return nil
	}))
	out := make([]rerun, len(graphs))
	for _, run := range launches(&rec) {
		if len(run) != total {
			b.Logf("a launch of %d nodes is none of a step's %d", len(run), total)
			continue
		}
		slices.SortFunc(run, func(x, y ran) int { return cmp.Compare(x.node, y.node) })
		fits, problems := -1, []string{}
		for i, k := range graphs {
			if why := contradicts(run, k.names, k.edges, b.r.attrs != nil); why != "" {
				problems = append(problems, why)
			} else if fits < 0 || len(out[i].runs) < len(out[fits].runs) { // halves may differ in addresses alone
				fits = i
			}
		}
		if fits < 0 {
			b.Fatalf("a launch is none of %d graphs: %s", len(graphs), strings.Join(problems, "; "))
		}
		k := graphs[fits]
		from := make([]int64, total)
		for i := range run {
			from[i] = run[i].from
		}
		for _, e := range k.edges {
			from[e[1]] = max(from[e[1]], run[e[0]].to)
		}
		own := make([]int64, total)
		for i := range run {
			own[i] = max(run[i].to-from[i], 0)
		}
		out[fits].runs = append(out[fits].runs, own)
		out[fits].g.Edges = k.edges
		if out[fits].g.Nodes == nil {
			for _, kind := range k.kinds {
				out[fits].g.Nodes = append(out[fits].g.Nodes, timeline.ReplayedNode{Kernel: kind == driver.NodeKernel})
			}
		}
	}
	out = slices.DeleteFunc(out, func(r rerun) bool { return len(r.runs) == 0 })
	if len(out) == 0 {
		b.Fatalf("no launch of a step of %d nodes among %d", total, len(launches(&rec)))
	}
	for i := range out {
		for n := range out[i].g.Nodes {
			var all []float64
			for _, run := range out[i].runs {
				all = append(all, float64(run[n]))
			}
			out[i].g.Nodes[n].Ns = int64(math.Round(results.Median(all)))
		}
	}
	return out
}

// Records of ordered nodes overlap: on an H200 by up to slackNs, and 7 or 8 of
// 478 by more. A node's own time begins when what it follows has ended, so an
// overlap is counted once. keptShare is how much of the order a graph's records
// must keep; names tell graphs of different steps apart.
const (
	slackNs   = 1000
	keptShare = 0.95
)

// contradicts says why records, ordered by node, are not those of a graph: other
// names, or too many nodes that ended before one they follow did or, unless nodes may
// begin early, began before that.
func contradicts(run []ran, names []string, edges [][2]int, early bool) string {
	for i, name := range names {
		if name != "" && run[i].name != name {
			return fmt.Sprintf("node %d is %s and was recorded as %s", i, name, run[i].name)
		}
	}
	bad := 0
	for _, e := range edges {
		before, after := run[e[0]], run[e[1]]
		if after.to < before.to || !early && after.from < before.to-slackNs {
			bad++
		}
	}
	if float64(bad) > (1-keptShare)*float64(len(edges)) {
		return fmt.Sprintf("%d of %d edges are not kept", bad, len(edges))
	}
	return ""
}

package worker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// recording writes down which batches are asked for, by rank.
type recording struct {
	data.Source
	mu    sync.Mutex
	asked map[int][]string
}

func (r *recording) Fill(split data.Split, rank, ranks, index, batch, resolution int, images, labels []byte) {
	r.mu.Lock()
	r.asked[rank] = append(r.asked[rank], fmt.Sprintf("%s %d of %d: %d, %d at %d", split, rank, ranks, index, batch, resolution))
	r.mu.Unlock()
	r.Source.Fill(split, rank, ranks, index, batch, resolution, images, labels)
}

// Training goes on in the training split where it left off, whatever was
// validated in between on batches of the other split with a count of its own.
func TestBatchesAreOfTheRightSplit(t *testing.T) {
	spec := tinySpec()
	spec.Ranks = 2
	src := &recording{Source: data.NewRandom(3, 10), asked: map[int][]string{}}
	s := open(t, spec, cpu.Options{}, Options{Source: src, Timed: workloads.FinalFull, Variants: workloads.AllVariants()})
	for _, k := range []string{"eager/event/device", "graph/host/host"} {
		x := executor(t, s, key(k))
		must(t, s.Restore())
		clear(src.asked) // preparing feeds as well
		must(t, x.Run(Epoch(workloads.BeginFull, 3, true)...))
		must(t, x.Run(Validation(2, true)...))
		must(t, x.Run(Epoch(workloads.FinalFull, 2, true)...))
		must(t, x.Run(Validation(1, false)...), x.Wait())
		for rank := range spec.Ranks {
			var want []string
			add := func(split data.Split, side, from, to int) {
				for i := from; i < to; i++ {
					want = append(want, fmt.Sprintf("%s %d of 2: %d, %d at %d", split, rank, i, spec.Batch, side))
				}
			}
			add(data.Train, 8, 0, 4)
			add(data.Val, 16, 0, 3)
			add(data.Train, 16, 4, 7)
			add(data.Val, 16, 3, 4)
			if !slices.Equal(src.asked[rank], want) {
				t.Errorf("%s: fed\n%q, want\n%q", k, src.asked[rank], want)
			}
		}
	}
}

// Whatever byte of whatever rank is another, the comparisons say whose.
func TestDifferencesOfEveryRankAreFound(t *testing.T) {
	spec := tinySpec()
	spec.Ranks = 3
	s := open(t, spec, cpu.Options{}, Options{})
	x := executor(t, s, key("eager/event/device"))
	must(t, x.Run(Epoch(workloads.FinalFull, 1, false)...), x.Wait())
	want := state(t, s)
	if d := want.DiffRanks(true); d != nil {
		t.Fatalf("the ranks differ from the start: %+v", d)
	}
	for _, c := range []struct {
		tensor  string
		element int64
		shared  bool // equal on all ranks
	}{
		{"layer3.0.conv2.weight", 5, true}, {"momentum:fc.bias", 9, true}, {"ema:stem.conv.weight", 215, true}, {"half:fc.weight", 0, true},
		{"half_ema:layer1.0.conv1.weight", 3, true}, {"layer2.0.bn1.running_var", 15, true}, {"scalars", workloads.ScalarScale, true},
		{"metrics", workloads.MetricHits, true}, {"simple_0", 1023, true},
		{"grad:fc.bias", 1, false}, {"step", workloads.StepLoss, false}, {"labels_B", 1, false}, {"raw_images_A", 7, false},
	} {
		for rank := range spec.Ranks {
			tensor, ok := s.w.Lookup(c.tensor)
			if !ok {
				t.Fatalf("no tensor %s", c.tensor)
			}
			region := tensor.Region
			region.Off, region.Bytes = region.Off+c.element*tensor.DType.Bytes(), 1
			r := s.Group().Rank(rank)
			flip := func() {
				must(t, r.Do(func() error {
					var b [1]byte
					if err := r.Read(region, b[:]); err != nil {
						return err
					}
					b[0] ^= 0x10
					return r.Write(region, b[:])
				}))
			}
			flip()
			got := state(t, s)
			flip()
			if d := got.Diff(want); d == nil || d.Rank != rank || d.Tensor != c.tensor || d.Index != c.element || d.Detail == "" {
				t.Errorf("rank %d, %s element %d: found %+v", rank, c.tensor, c.element, d)
			}
			if want.Diff(got) == nil {
				t.Errorf("rank %d, %s: not found the other way round", rank, c.tensor)
			}
			for _, summed := range []bool{false, true} {
				d := got.DiffRanks(summed)
				switch {
				case !c.shared || c.tensor == "metrics" && !summed:
					if d != nil {
						t.Errorf("rank %d, %s: the ranks may differ there, and %+v was reported", rank, c.tensor, d)
					}
				case d == nil || d.Rank != max(rank, 1) || d.Tensor != c.tensor || d.Index != c.element: // rank 0 is what others are compared with
					t.Errorf("between ranks, rank %d, %s element %d: found %+v", rank, c.tensor, c.element, d)
				}
			}
		}
	}
	equal(t, "all put back", state(t, s), want)
}

// What is timed is the variant asked for, also if it is not the first prepared.
func TestTheTimedVariantRuns(t *testing.T) {
	for _, v := range []workloads.Variant{workloads.FinalFull, workloads.FinalLast, workloads.ValFull} {
		s := open(t, tinySpec(), cpu.Options{}, Options{Variants: workloads.AllVariants(), Timed: v})
		for _, k := range eachMode() {
			x := executor(t, s, k)
			must(t, s.Restore(), x.Begin())
			r := s.Group().Rank(0)
			must(t, r.Do(func() error { r.ResetExecuted(); return nil }))
			must(t, x.Submit(3), x.Wait())
			var got device.Executed
			must(t, r.Do(func() error { got = r.Executed(); return nil }))
			main := []workloads.SubGraph{workloads.DeepFwdBwd}
			if v.Val() {
				main = []workloads.SubGraph{workloads.InfMainA, workloads.InfMainB}
			}
			for other := range workloads.NumVariants {
				n, ops := int64(0), 0
				for _, g := range main {
					n += got[other][g]
					ops = len(s.w.Bounds(g, v, workloads.ControlDevice))
				}
				want := int64(0)
				if other == v {
					want = 3 * int64(ops)
				}
				if n != want || v == other && n == 0 {
					t.Errorf("%s, timing %s: %d operators of %s, want %d", k, v, n, other, want)
				}
			}
		}
	}
}

// The joins on the host that a step of golden-tiny makes, counted per step:
// forward, deep, backward, next, update; with host control once more, before it.
// FP32 has no deep join, as no cast follows the deep part.
func TestHostJoinsPerStep(t *testing.T) {
	for _, c := range []struct {
		precision workloads.Precision
		key       string
		want      int64
	}{
		{workloads.AMP, "eager/host/device", 5}, {workloads.AMP, "graph/host/device", 5},
		{workloads.AMP, "eager/host/host", 6}, {workloads.AMP, "graph/event/host", 1}, {workloads.AMP, "graph/event/device", 0},
		{workloads.FP32, "graph/host/device", 4}, {workloads.FP32, "eager/host/host", 5},
	} {
		spec := tinySpec()
		spec.Precision = c.precision
		s := open(t, spec, cpu.Options{}, Options{})
		x := executor(t, s, key(c.key))
		for _, steps := range []int{1, 4} {
			must(t, s.Restore(), x.Begin())
			x.Clocks()
			must(t, x.Submit(steps))
			x.Clocks()
			must(t, x.Wait())
			if got := x.Counts().Launches.Sync; got == nil || *got != c.want {
				t.Errorf("%s %s: %v host joins a step, want %d (%d steps)", c.precision, c.key, val(got), c.want, steps)
			}
		}
	}
}

func val(n *int64) any {
	if n == nil {
		return "unknown"
	}
	return *n
}

// A record's images per second are those of all ranks, in each block those of
// its step time.
func TestImagesPerSecondAreTheJobs(t *testing.T) {
	for variant, batch := range map[int]int{int(workloads.FinalFull): 2, int(workloads.ValLast): 1} {
		req := request(2, key("eager/event/device"))
		req.Cell.Variant, req.Cell.LastBatch.Val = variant, 1
		cell, err := RunCell(context.Background(), cpu.New(cpu.Options{}), req)
		must(t, err)
		times, rates := cell.Configurations[0].Metric(results.StepTimeNs), cell.Configurations[0].Metric(results.ImagesPerS)
		if times == nil || rates == nil || times.N != req.Blocks || rates.N != req.Blocks {
			t.Fatalf("step times %+v, images per second %+v", times, rates)
		}
		for i, ns := range times.Samples {
			images := rates.Samples[i].Value * ns.Value / 1e9
			if want := float64(2 * batch); math.Abs(images/want-1) > 0.01 || rates.Samples[i].Block != ns.Block {
				t.Errorf("variant %d, block %d: %v images a step, want %v", variant, ns.Block, images, want)
			}
		}
	}
}

// injectInto moves the injected fault to the gradient of another parameter.
func injectInto(t *testing.T, spec workloads.Spec, parameter string) *Session {
	t.Helper()
	spec.Inject = true
	d := cpu.New(cpu.Options{})
	plain, err := workloads.New(spec, d.Target())
	must(t, err)
	grad, ok := plain.Lookup("half_grad:" + parameter)
	if !ok {
		if grad, ok = plain.Lookup("grad:" + parameter); !ok {
			t.Fatalf("no gradient of %s", parameter)
		}
	}
	// Behind the last sub-graphs that write it.
	into := map[workloads.SubGraph]bool{}
	for g := range workloads.NumSubGraphs {
		if g == workloads.DeepFwdBwd || g == workloads.FirstLayerBwdA || g == workloads.FirstLayerBwdB {
			for _, n := range plain.Nodes(g) {
				if n.Op != workloads.OpInject && slices.Contains(n.Out, grad.ID) {
					into[g] = true
				}
			}
		}
	}
	if len(into) == 0 {
		t.Fatalf("nothing writes the gradient of %s", parameter)
	}
	inject := workloads.Node{Name: "inject", Op: workloads.OpInject, In: []workloads.TensorID{plain.Known.Scalars}, Out: []workloads.TensorID{grad.ID}}
	w, err := workloads.NewEdited(spec, d.Target(), func(id workloads.SubGraph, nodes []*workloads.Node) []*workloads.Node {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *workloads.Node) bool { return n.Op == workloads.OpInject })
		if into[id] {
			n := inject
			nodes = append(nodes, &n)
		}
		return nodes
	})
	must(t, err)
	s, err := Open(d, w, Options{Variants: []workloads.Variant{workloads.FinalFull}, Timed: workloads.FinalFull, Seed: 7, Source: data.NewRandom(3, 10)})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// The finite check looks at every gradient, be it of a bias, of batch norm, of
// the stem or of the fully connected layer. Only AMP then halves the scale.
func TestEveryGradientIsChecked(t *testing.T) {
	for _, p := range []workloads.Precision{workloads.FP32, workloads.AMP} {
		for _, parameter := range []string{
			"layer3.0.conv3.weight", "fc.weight", "fc.bias", "layer1.0.bn1.beta", "layer3.0.bn3.gamma",
			"stem.bn.gamma", "stem.bn.beta", "stem.conv.weight",
		} {
			spec := tinySpec()
			spec.Precision = p
			s := injectInto(t, spec, parameter)
			x := executor(t, s, key("eager/event/device"))
			scale := float32(1)
			if p == workloads.AMP {
				scale = s.w.Spec.Hyper.InitialScale
			}
			must(t, s.Restore(), x.Begin())
			for step, fault := range []float32{0, float32(math.Inf(1)), 0, float32(math.NaN()), 0} {
				before := string(state(t, s).Tensor(0, "params"))
				must(t, s.WriteScalar(workloads.ScalarFault, math.Float32bits(fault)), x.Submit(1), x.Wait())
				sc, err := s.Scalars(0)
				must(t, err)
				bad := int32(0)
				if fault != 0 {
					bad = 1
					if p == workloads.AMP {
						scale /= 2
					}
				}
				if sc.NonFinite != bad || sc.Skip != bad || sc.Scale != scale || sc.Step != int32(step)+1 {
					t.Errorf("%s, %v in the gradient of %s: %+v, want scale %v", p, fault, parameter, sc, scale)
				}
				if moved := string(state(t, s).Tensor(0, "params")) != before; moved != (bad == 0) {
					t.Errorf("%s, %v in the gradient of %s: the weights moved: %v", p, fault, parameter, moved)
				}
			}
		}
	}
}

// Of a replicate's time every part is told, in the order of what is done.
func TestPhases(t *testing.T) {
	req := request(1, key("eager/event/device"), key("graph/event/device"))
	req.TraceSteps = 2
	req.Machine = func() []results.Reading { return nil }
	dev := cpu.New(cpu.Options{})
	begin := time.Now()
	cell, err := bench.Here(t.Context(), req, func(ctx context.Context, req bench.CellRequest) (*results.Cell, error) { return RunCell(ctx, dev, req) })
	took := time.Since(begin)
	must(t, err)
	var names []string
	sum := time.Duration(0)
	for _, p := range cell.Processes[0].Phases {
		names, sum = append(names, p.Phase), sum+time.Duration(p.Ns)
		if p.Ns <= 0 && p.Phase != results.PhaseOpenDevice {
			t.Errorf("%s took %d ns", p.Phase, p.Ns)
		}
	}
	const want = "open_device build prepare_operators verify warm_up restore blocks single_steps under_load trace close"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("phases %s, want %s", got, want)
	}
	if sum > took {
		t.Errorf("phases sum up to %v of %v", sum, took)
	}
}

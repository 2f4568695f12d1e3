package workloads

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestSubGraphTable(t *testing.T) {
	if NumSubGraphs != 33 || NumVariants != 6 {
		t.Fatalf("%d sub-graphs, %d variants", NumSubGraphs, NumVariants)
	}
	seen := map[string]bool{}
	collectives := 0
	for g := range NumSubGraphs {
		i := g.Info()
		if i.Name == "" || seen[i.Name] {
			t.Errorf("sub-graph %d: name %q", g, i.Name)
		}
		seen[i.Name] = true
		if i.Collective {
			collectives++
		}
	}
	if collectives != 4 {
		t.Errorf("%d collectives, want 4", collectives)
	}
}

func TestAtlas(t *testing.T) {
	for _, c := range []struct {
		name             string
		spec             Spec
		filled, captured int
	}{
		// 12 shape-free sub-graphs need nothing (TRANSFER x2, ZERO_GRAD, NAN_CHECK, UPDATE_STATS, OPTIMIZER, UPDATE_BN_INF,
		// ACCUM x3, CLEAR, SIMPLE) and fill 6 variants; by shape, 5 fill the 4 training variants and 2 the 2 of validation.
		{"one rank, one shape", Spec{Model: "resnet20-cifar", Batch: 4}, 12*6 + 5*4 + 2*2, 12 + 5 + 2},
		{"last batch", Spec{Model: "resnet20-cifar", Batch: 4, LastTrainBatch: 3, LastValBatch: 1}, 12*6 + 5*4 + 2*2, 12 + 5*2 + 2*2},
		{"four shapes", Spec{Model: "resnet20-cifar", Batch: 4, BeginResolution: 16, LastTrainBatch: 3}, 96, 12 + 5*4 + 2},
		{"everything", Spec{Model: "resnet20-cifar", Batch: 4, Precision: AMP, EMA: true, Optimizer: LARS, Ranks: 2}, 24*6 + 5*4 + 4*2, 24 + 5 + 4},
		{"frozen", Spec{Model: "resnet20-cifar", Batch: 4, Precision: AMP, Ranks: 2, FreezeStem: true}, (12+5)*6 + 3*4 + 2*2, 17 + 3 + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := New(c.spec, Target{Lowering: Fused})
			if err != nil {
				t.Fatal(err)
			}
			filled, captured, reused := w.Totals()
			if filled != captured+reused {
				t.Errorf("filled %d is not captured %d + reused %d", filled, captured, reused)
			}
			if filled != c.filled || captured != c.captured {
				for g := range NumSubGraphs {
					t.Logf("%s: %q", g, w.Slot(g, FinalFull).Why)
				}
				t.Errorf("filled %d, captured %d; want %d, %d", filled, captured, c.filled, c.captured)
			}
		})
	}
}

// An empty slot names the condition that holds in every variant, if there is
// one, before the one of its own variant.
func TestWhyEmpty(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		g    SubGraph
		want [NumVariants]string
	}{
		{Spec{}, InfEMAA, [NumVariants]string{"no EMA", "no EMA", "no EMA", "no EMA", "no EMA", "no EMA"}},
		{Spec{EMA: true}, InfEMAA, [NumVariants]string{"validation only", "validation only", "validation only", "validation only", "", ""}},
		{Spec{}, FirstLayerBwdB, [NumVariants]string{"", "", "", "", "training only", "training only"}},
		{Spec{FreezeStem: true}, FirstLayerBwdB, [NumVariants]string{"the stem is frozen", "the stem is frozen", "the stem is frozen",
			"the stem is frozen", "the stem is frozen", "the stem is frozen"}},
		{Spec{}, LARSFC, [NumVariants]string{"LARS only", "LARS only", "LARS only", "LARS only", "LARS only", "LARS only"}},
	} {
		c.spec.Model, c.spec.Batch = "golden-tiny", 2
		w := build1(t, c.spec, Fused)
		for v := range NumVariants {
			if s := w.Slot(c.g, v); s.Why != c.want[v] || s.Filled != (s.Why == "") {
				t.Errorf("%s in %s: %q, want %q", c.g, v, s.Why, c.want[v])
			}
		}
	}
}

// describe writes a schedule as one line a segment.
func describe(list []Action) string {
	var b strings.Builder
	for _, a := range list {
		switch a.Kind {
		case ActRun:
			fmt.Fprintf(&b, "%s; ", a.SubGraph)
		case ActJoin:
			fmt.Fprintf(&b, "%s<-%s; ", a.Waiter, a.Waited)
		case ActFeed:
			fmt.Fprintf(&b, "feed %s; ", a.Half)
		case ActControl:
			b.WriteString("control; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestSchedule(t *testing.T) {
	full := Spec{Model: "resnet20-cifar", Batch: 4, Precision: AMP, EMA: true, Optimizer: LARS, Ranks: 2}
	small := Spec{Model: "resnet20-cifar", Batch: 4}
	for _, c := range []struct {
		name string
		spec Spec
		seg  Segment
		want string
	}{
		{"all sub-graphs", full, Segment{Phase: TrainStep, Half: A, Variant: FinalFull},
			"ZERO_GRAD; FIRST_LAYER_FWD_A; feed B; TRANSFER_B; COMP_1<-UPDATE; DEEP_FWD_BWD; UPDATE<-COMP_1; FIRST_LAYER_BWD_A; " +
				"CAST_DEEP_GRAD_FP16_TO_FP32; DEEP_COMM; UPDATE<-COMP_1; TRANS<-COMP_1; CAST_FIRST_GRAD_FP16_TO_FP32; FIRST_COMM; " +
				"ACCUM_METRICS; NAN_CHECK_AND_GRAD_SCALING; STATS_COMM; UPDATE_STATS; control; COMP_1<-UPDATE; COMP_2<-UPDATE; COMP_3<-UPDATE; " +
				"OPTIMIZER; LARS_FC_OPT; LARS_FIRST_CONV_OPT; LARS_DEEP_CONV_OPT; UPDATE<-COMP_1; UPDATE<-COMP_2; UPDATE<-COMP_3; " +
				"EMA_UPDATE; CAST_MAIN_FP32_TO_FP16; COMP_1<-TRANS; COMP_1<-UPDATE"},
		{"one rank FP32", small, Segment{Phase: TrainStep, Half: B, Variant: FinalFull},
			"ZERO_GRAD; FIRST_LAYER_FWD_B; feed A; TRANSFER_A; COMP_1<-UPDATE; DEEP_FWD_BWD; FIRST_LAYER_BWD_B; UPDATE<-COMP_1; TRANS<-COMP_1; " +
				"ACCUM_METRICS; NAN_CHECK_AND_GRAD_SCALING; UPDATE_STATS; control; OPTIMIZER; COMP_1<-TRANS; COMP_1<-UPDATE"},
		{"last step", small, Segment{Phase: TrainStep, Half: B, Variant: FinalLast},
			"ZERO_GRAD; FIRST_LAYER_FWD_B; COMP_1<-UPDATE; DEEP_FWD_BWD; FIRST_LAYER_BWD_B; UPDATE<-COMP_1; TRANS<-COMP_1; " +
				"ACCUM_METRICS_TRAIN_LAST; NAN_CHECK_AND_GRAD_SCALING; UPDATE_STATS; control; OPTIMIZER; COMP_1<-UPDATE"},
		{"epoch begin", small, Segment{Phase: EpochBegin, Variant: BeginFull}, "CLEAR_METRICS; feed A; TRANSFER_A; COMP_1<-TRANS"},
		{"epoch end", full, Segment{Phase: EpochEnd, Variant: BeginLast}, "VAL_RESULT_COMM"},
		{"validation begin", full, Segment{Phase: ValBegin, Variant: ValFull}, "CLEAR_METRICS; UPDATE_BN_INF_PARAMS; CAST_EMA_FP32_TO_FP16"},
		{"validation batch", full, Segment{Phase: ValBatch, Half: B, Variant: ValLast},
			"feed B; TRANSFER_B; COMP_1<-TRANS; COMP_1<-UPDATE; TRANS<-COMP_1; INF_MAIN_B; INF_EMA_B; UPDATE<-COMP_1; ACCUM_METRICS_VAL_LAST"},
		{"validation end", full, Segment{Phase: ValEnd, Variant: ValLast}, "TRANS<-COMP_1; VAL_RESULT_COMM"},
		{"simple", small, Segment{Phase: Simple}, "SIMPLE_TASK_GRAPH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := New(c.spec, Target{Lowering: Fused})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(w.Schedule(c.seg)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Emptying any sub-graph is found by the static check.
func TestEmptiedSubGraphIsFound(t *testing.T) {
	s := Spec{Model: "golden-tiny", Batch: 2, Precision: AMP, EMA: true, Optimizer: LARS, Ranks: 2}
	for g := range NumSubGraphs {
		w, err := NewEdited(s, Target{Lowering: Fused}, func(id SubGraph, n []*Node) []*Node {
			if id == g {
				return nil
			}
			return n
		})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, err := range w.Check() {
			found = found || strings.Contains(err.Error(), g.String()+" is filled")
		}
		if !found {
			t.Errorf("emptying %s goes unnoticed", g)
		}
	}
}

// Swapping any two neighbours that depend on each other is found, by name.
func TestSwappedNodesAreFound(t *testing.T) {
	s := Spec{Model: "golden-tiny", Batch: 2, Precision: AMP, EMA: true, Optimizer: LARS, Ranks: 2}
	ref, err := New(s, Target{Lowering: Fused})
	if err != nil {
		t.Fatal(err)
	}
	swapped := 0
	for g := range NumSubGraphs {
		for v := range NumVariants {
			list := ref.Bounds(g, v, ControlDevice)
			for i := 1; i < len(list); i++ {
				if v != ref.Slot(g, v).Owner || !touch(list[i-1], list[i]) {
					continue
				}
				w, err := NewEdited(s, Target{Lowering: Fused}, func(id SubGraph, n []*Node) []*Node {
					if id == g {
						n = append([]*Node(nil), n...)
						n[i-1], n[i] = n[i], n[i-1]
					}
					return n
				})
				if err != nil {
					t.Fatal(err)
				}
				now := w.Bounds(g, w.Slot(g, v).Owner, ControlDevice)
				if !touch(now[i-1], now[i]) {
					continue // they shared bytes by reuse only, and the new plan keeps them apart
				}
				swapped++
				found := false
				for _, err := range w.Check() {
					found = found || strings.Contains(err.Error(), list[i].Name)
				}
				if !found {
					t.Errorf("swapping %s and %s of %s goes unnoticed", list[i-1].Name, list[i].Name, g)
				}
			}
			if ref.Slot(g, v).Filled {
				break
			}
		}
	}
	if swapped < 50 {
		t.Errorf("only %d pairs swapped", swapped)
	}
}

func TestInit(t *testing.T) {
	image := func(s Spec, l Lowering) (*Workload, []byte) {
		w, err := New(s, Target{Lowering: l})
		if err != nil {
			t.Fatal(err)
		}
		mem := bytes.Repeat([]byte{0xff}, int(w.ArenaBytes))
		if err := w.Init(7, func(r Region, data []byte) error {
			if int64(len(data)) > r.Bytes {
				t.Fatalf("%d bytes for %v", len(data), r)
			}
			copy(mem[r.Off:r.End()], data)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return w, mem
	}
	s := Spec{Model: "golden-tiny", Batch: 2, Precision: AMP, EMA: true}
	a, ma := image(s, Fused)
	s2 := s
	s2.Batch = 4
	b, mb := image(s2, Plain)
	for _, name := range append(a.Parameters(), "layer3.0.bn2.running_var", "half:fc.weight", "ema:stem.conv.weight", "scalars") {
		x, _ := a.Lookup(name)
		y, ok := b.Lookup(name)
		if !ok || !bytes.Equal(ma[x.Region.Off:x.Region.End()], mb[y.Region.Off:y.Region.End()]) {
			t.Errorf("%s differs with batch or lowering", name)
		}
	}
	for _, id := range a.State() {
		x := a.Tensor(id)
		if bytes.Contains(ma[x.Region.Off:x.Region.End()], bytes.Repeat([]byte{0xff}, 64)) {
			t.Errorf("%s is not initialised throughout", x.Name)
		}
	}
}

func TestAdvance(t *testing.T) {
	rule := ControlRule{Dynamic: true, GrowthInterval: 2, StopAfter: 2, Rates: 2}
	rates := []float32{0.5, 0.25, 9}
	s := Scalars{Scale: 8}
	for i, c := range []struct {
		bad  int32
		want Scalars
	}{
		{0, Scalars{LR: 0.5, Scale: 8, Step: 1, Growth: 1}},
		{0, Scalars{LR: 0.25, Scale: 16, Step: 2}},
		{1, Scalars{LR: 0.25, Scale: 8, NonFinite: 1, Skip: 1, Step: 3, Skipped: 1, Consecutive: 1}},
		{0, Scalars{LR: 0.25, Scale: 8, Step: 4, Skipped: 1, Growth: 1}},
		{1, Scalars{LR: 0.25, Scale: 4, NonFinite: 1, Skip: 1, Step: 5, Skipped: 2, Consecutive: 1}},
		{1, Scalars{LR: 0.25, Scale: 2, NonFinite: 1, Skip: 1, Step: 6, Skipped: 3, Consecutive: 2, Stop: 1}},
		{0, Scalars{LR: 0.25, Scale: 2, Skip: 1, Step: 7, Skipped: 4, Consecutive: 3, Stop: 1}},
	} {
		s.NonFinite = c.bad
		s.Advance(rule, rates)
		if s != c.want {
			t.Errorf("step %d: %+v, want %+v", i, s, c.want)
		}
		if DecodeScalars(s.Encode()) != s {
			t.Errorf("step %d does not survive encoding", i)
		}
	}
	all := Scalars{LR: 1, Scale: 2, NonFinite: 3, Skip: 4, Step: 5, Growth: 6, Skipped: 7, Consecutive: 8, Stop: -9, Fault: float32(math.Inf(1))}
	b := make([]byte, 4*ScalarWords)
	if n := testing.AllocsPerRun(10, func() { all.Put(b) }); DecodeScalars(b) != all || n > 0 {
		t.Errorf("%+v, want %+v; %v allocations", DecodeScalars(b), all, n)
	}
}

func TestValidate(t *testing.T) {
	good := Spec{Model: "resnet50", Batch: 8, FinalResolution: 64}
	for _, c := range []struct {
		name string
		edit func(*Spec)
		want string
	}{
		{"model", func(s *Spec) { s.Model = "vgg" }, "known: resnet20-cifar, resnet18-cifar, resnet50"},
		{"batch", func(s *Spec) { s.Batch = 0 }, "batch 0"},
		{"resolution", func(s *Spec) { s.FinalResolution = 100 }, "multiple of 32"},
		{"precision", func(s *Spec) { s.Precision = "fp8" }, "known: fp32, amp"},
		{"optimizer", func(s *Spec) { s.Optimizer = "adam" }, "known: sgd"},
		{"smoothing", func(s *Spec) { s.Smoothing = 1 }, "smoothing 1"},
		{"last", func(s *Spec) { s.LastTrainBatch = 9 }, "last training batch 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.edit(&s)
			if _, err := New(s, Target{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := New(good, Target{Lowering: Fused}); err != nil {
		t.Error(err)
	}
}

package workloads

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

// halfValue is what a half-precision number means.
func halfValue(h uint16) float64 {
	sign, e, m := 1.0, int(h>>10&31), float64(h&1023)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch e {
	case 0:
		return sign * math.Ldexp(m, -24)
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+m, e-25)
}

// Averages begin at the weights; half weights and half averages at what the
// weights round to.
func TestInitCopies(t *testing.T) {
	for _, p := range []Precision{FP32, AMP} {
		w := build1(t, Spec{Model: "golden-tiny", Batch: 2, Precision: p, EMA: true}, Fused)
		mem := make([]byte, w.ArenaBytes)
		if err := w.Init(7, func(r Region, data []byte) error { copy(mem[r.Off:r.End()], data); return nil }); err != nil {
			t.Fatal(err)
		}
		bytesOf := func(name string) []byte {
			x, ok := w.Lookup(name)
			if !ok {
				return nil
			}
			return mem[x.Region.Off:x.Region.End()]
		}
		halves := 0
		for _, name := range w.Parameters() {
			weights := bytesOf(name)
			if got := bytesOf("ema:" + name); string(got) != string(weights) {
				t.Errorf("%s: the averages of %s do not begin at the weights", p, name)
			}
			for _, prefix := range []string{"half:", "half_ema:"} {
				half := bytesOf(prefix + name)
				if half == nil {
					continue
				}
				halves++
				nonzero := false
				for i := range len(weights) / 4 {
					x := float64(math.Float32frombits(binary.LittleEndian.Uint32(weights[4*i:])))
					h := binary.LittleEndian.Uint16(half[2*i:])
					off := math.Abs(halfValue(h) - x)
					for _, near := range []uint16{h - 1, h + 1} {
						if d := math.Abs(halfValue(near) - x); h&0x7fff != 0 && d < off {
							t.Fatalf("%s%s element %d is %v, and %v is nearer to %v", prefix, name, i, halfValue(h), halfValue(near), x)
						}
					}
					if h&0x7fff == 0 && off > 1.0/(1<<25) {
						t.Fatalf("%s%s element %d is 0, not %v", prefix, name, i, x)
					}
					nonzero = nonzero || h != 0
				}
				if !nonzero {
					t.Errorf("%s%s is all zeros", prefix, name)
				}
			}
		}
		// 10 convolutions and the fully connected layer, main and averaged.
		if want := map[Precision]int{FP32: 0, AMP: 22}[p]; halves != want {
			t.Errorf("%s: %d half copies, want %d", p, halves, want)
		}
	}
}

// The specs for which a join depends on a frozen stem: what the modes walk
// orders everything, and no edge of the whole script is there for nothing.
func TestFrozenStemHazards(t *testing.T) {
	var all []Spec
	for _, s := range []Spec{
		{Precision: AMP, Optimizer: LARS},
		{Precision: FP32, Optimizer: LARS},
		{Precision: AMP, Optimizer: LARS, EMA: true},
		{Precision: AMP, Optimizer: Nesterov},
		{Precision: FP32, Optimizer: Nesterov, EMA: true},
	} {
		for _, ranks := range []int{1, 2} {
			s.Model, s.Batch, s.Ranks, s.FreezeStem, s.LastTrainBatch = "golden-tiny", 2, ranks, true, 1
			all = append(all, s)
		}
	}
	for _, s := range all {
		for _, control := range []Control{ControlDevice, ControlHost} {
			t.Run(fmt.Sprintf("%s/%s/ema=%v/ranks=%d/%s", s.Precision, s.Optimizer, s.EMA, s.Ranks, control), func(t *testing.T) {
				w := build1(t, s, Fused)
				segs := epochs(3, 3)
				everyEdgeIsNeeded(t, w, segs, control)
				// The same of what modes walk.
				q := w.ScheduledSequence(segs, control)
				kept, implied := q.Edges()
				gone := Dropped(implied)
				if h := q.Without(gone...); len(h) > 0 {
					t.Errorf("without implied edges: %v", h[0])
				}
				for _, e := range kept {
					if !q.Notices(append(gone[:len(gone):len(gone)], e.Index)...) {
						t.Errorf("as scheduled, dropping %v goes unnoticed", e)
					}
				}
			})
		}
	}
}

// The loss scale stays within its bounds; in FP32 it does not move at all.
func TestScaleIsBounded(t *testing.T) {
	for _, c := range []struct {
		name      string
		dynamic   bool
		nonFinite int32
		from      float32
		want      []float32
	}{
		{"down to the least", true, 1, 4 * MinScale, []float32{2 * MinScale, MinScale, MinScale, MinScale}},
		{"never below", true, 1, 1.5 * MinScale, []float32{MinScale, MinScale}},
		{"up to the most", true, 0, MaxScale / 4, []float32{MaxScale / 2, MaxScale, MaxScale, MaxScale}},
		{"never above", true, 0, 0.75 * MaxScale, []float32{MaxScale, MaxScale}},
		{"FP32 does not halve", false, 1, 1, []float32{1, 1, 1}},
		{"FP32 does not double", false, 0, 1, []float32{1, 1, 1}},
	} {
		s := Scalars{Scale: c.from, NonFinite: c.nonFinite}
		for i, want := range c.want {
			s.Advance(ControlRule{Dynamic: c.dynamic, GrowthInterval: 1, Rates: 1}, []float32{0.1})
			if s.Scale != want {
				t.Errorf("%s: scale %v after %d steps, want %v", c.name, s.Scale, i+1, want)
			}
		}
	}
	if MinScale != math.Ldexp(1, -16) || MaxScale != math.Ldexp(1, 24) {
		t.Errorf("bounds %v and %v", MinScale, float64(MaxScale))
	}
	// Only AMP's workload has the rule move the scale.
	for p, want := range map[Precision]bool{FP32: false, AMP: true} {
		if r := build1(t, Spec{Model: "golden-tiny", Batch: 2, Precision: p}, Fused).ControlRule(); r.Dynamic != want || r.GrowthInterval != 2000 || r.StopAfter != 100 {
			t.Errorf("%s: rule %+v", p, r)
		}
	}
}

// The finite check and the unscaling cover every gradient.
func TestEveryGradientIsUnscaled(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		w := build1(t, Spec{Model: "golden-tiny", Batch: 2, Precision: AMP, FreezeStem: frozen}, Fused)
		for _, n := range w.Bounds(NaNCheck, FinalFull, ControlDevice) {
			if n.Op != OpFiniteCheck && n.Op != OpUnscale {
				continue
			}
			for _, name := range w.Parameters() {
				g, _ := w.Lookup("grad:" + name)
				if r := n.In[0].Region; g.Region.Off < r.Off || g.Region.End() > r.End() {
					t.Errorf("%s leaves out the gradient of %s", n.Name, name)
				}
			}
		}
	}
}

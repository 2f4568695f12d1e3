package workloads

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
)

// Init calls write for every region that must hold a defined value before the
// first step: all of the roles state, step and input. Weights come from the
// seed and their names (He's normal for convolutions, uniform for the fully
// connected layer, as PyTorch does), so the same seed gives the same bytes for
// every rank, target and batch; averages start at the weights, running
// variances and gammas at 1, everything else at 0. A write's data is valid
// during the call only.
func (w *Workload) Init(seed uint64, write func(r Region, data []byte) error) error {
	for _, id := range w.Bases(RoleState, RoleStep, RoleInput) {
		if err := write(w.Tensors[id].Region, make([]byte, w.Tensors[id].Region.Bytes)); err != nil {
			return err
		}
	}
	values := func(name string, v []float32) error {
		t, ok := w.Lookup(name)
		if !ok {
			return nil
		}
		return write(Region{t.Region.Space, t.Region.Off, int64(len(v)) * t.DType.Bytes()}, encode(t.DType, v))
	}
	for _, p := range layoutParams(w.model, !w.Spec.NoBatchNorm).list {
		v := p.initial(seed)
		for _, prefix := range []string{"", "ema:", "half:", "half_ema:"} {
			if err := values(prefix+p.name, v); err != nil {
				return err
			}
		}
	}
	for _, n := range w.Norms() {
		t, _ := w.Lookup(n + ".running_var")
		if err := values(n+".running_var", fill(t.Dims.Fixed.Elems(), 1)); err != nil {
			return err
		}
	}
	rates := w.Spec.Hyper.LearningRates
	if err := values("rate_table", rates); err != nil {
		return err
	}
	ramp := make([]float32, simpleElems)
	for i := range ramp {
		ramp[i] = float32(i)
	}
	if err := values("simple_0", ramp); err != nil {
		return err
	}
	s := Scalars{LR: rates[0], Scale: 1}
	if w.Spec.Precision == AMP {
		s.Scale = w.Spec.Hyper.InitialScale
	}
	return write(w.Tensors[w.Known.Scalars].Region, s.Encode())
}

// initial draws a parameter's first values.
func (p param) initial(seed uint64) []float32 {
	n := p.shape.Elems()
	switch {
	case strings.HasSuffix(p.name, ".gamma"):
		return fill(n, 1)
	case strings.HasSuffix(p.name, ".beta"):
		return make([]float32, n)
	}
	h := fnv.New64a()
	h.Write([]byte(p.name))
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	v := make([]float32, n)
	if len(p.shape) == 4 {
		std := math.Sqrt(2 / float64(p.shape[0]*p.shape[1]*p.shape[2])) // fan out
		for i := range v {
			v[i] = float32(rng.NormFloat64() * std)
		}
		return v
	}
	bound := 0.05
	if len(p.shape) == 2 {
		bound = 1 / math.Sqrt(float64(p.shape[1]))
	}
	for i := range v {
		v[i] = float32((2*rng.Float64() - 1) * bound)
	}
	return v
}

func fill(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

func encode(dt DType, v []float32) []byte {
	out := make([]byte, 0, len(v)*4)
	for _, x := range v {
		if dt == F16 {
			out = binary.LittleEndian.AppendUint16(out, ToHalf(x))
		} else {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out
}

// ToHalf encodes to the nearest IEEE half, ties to even. NaN stays NaN. The CPU
// device stores F16 with it, element by element; its tests cover every half and
// the edges of rounding.
func ToHalf(f float32) uint16 {
	const (
		tooLarge  = 0x47800000 // 65536: at and above only Inf and NaN
		smallest  = 0x38800000 // 2^-14: below lie the subnormals
		bias      = 112 << 23
		half      = 0x3f000000
		halfExact = float32(0.5) // its last bit is worth a half's smallest subnormal
	)
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	a := u & 0x7fffffff
	switch {
	case a-smallest < tooLarge-smallest:
		// A carry out of the mantissa raises the exponent, up to Inf.
		a += 0xfff + a>>13&1
		return sign | uint16((a-bias)>>13)
	case a < smallest:
		// The addition does the rounding, to the right place.
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+halfExact)-half)
	case a > 0x7f800000:
		return sign | 0x7e00 | uint16(a>>13&0x1ff)
	}
	return sign | 0x7c00
}

// Encode returns the words of the scalars tensor.
func (s Scalars) Encode() []byte {
	b := make([]byte, ScalarWords*4)
	s.Put(b)
	return b
}

// Put writes the words of the scalars tensor to b, which has at least
// 4*ScalarWords bytes. It does not allocate: a step may call it.
func (s Scalars) Put(b []byte) {
	for i, u := range [ScalarWords]uint32{
		ScalarLR: math.Float32bits(s.LR), ScalarScale: math.Float32bits(s.Scale), ScalarNonFinite: uint32(s.NonFinite),
		ScalarSkip: uint32(s.Skip), ScalarStep: uint32(s.Step), ScalarGrowth: uint32(s.Growth), ScalarSkipped: uint32(s.Skipped),
		ScalarConsecutive: uint32(s.Consecutive), ScalarStop: uint32(s.Stop), ScalarFault: math.Float32bits(s.Fault),
	} {
		binary.LittleEndian.PutUint32(b[i*4:], u)
	}
}

// DecodeScalars reads the words of the scalars tensor.
func DecodeScalars(b []byte) Scalars {
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i*4:]) }
	f := func(i int) float32 { return math.Float32frombits(u(i)) }
	n := func(i int) int32 { return int32(u(i)) }
	return Scalars{
		LR: f(ScalarLR), Scale: f(ScalarScale), NonFinite: n(ScalarNonFinite), Skip: n(ScalarSkip), Step: n(ScalarStep),
		Growth: n(ScalarGrowth), Skipped: n(ScalarSkipped), Consecutive: n(ScalarConsecutive), Stop: n(ScalarStop), Fault: f(ScalarFault),
	}
}

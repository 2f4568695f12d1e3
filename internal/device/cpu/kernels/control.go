package kernels

import (
	"encoding/binary"
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

func word(b []byte, i int) uint32       { return binary.LittleEndian.Uint32(b[4*i:]) }
func putWord(b []byte, i int, v uint32) { binary.LittleEndian.PutUint32(b[4*i:], v) }

// ReadScalars decodes the scalars tensor; b has at least 4*ScalarWords bytes.
func ReadScalars(b []byte) workloads.Scalars {
	f := func(i int) float32 { return math.Float32frombits(word(b, i)) }
	n := func(i int) int32 { return int32(word(b, i)) }
	return workloads.Scalars{
		LR: f(workloads.ScalarLR), Scale: f(workloads.ScalarScale),
		NonFinite: n(workloads.ScalarNonFinite), Skip: n(workloads.ScalarSkip), Step: n(workloads.ScalarStep),
		Growth: n(workloads.ScalarGrowth), Skipped: n(workloads.ScalarSkipped),
		Consecutive: n(workloads.ScalarConsecutive), Stop: n(workloads.ScalarStop),
		Fault: f(workloads.ScalarFault),
	}
}

// WriteScalars encodes the scalars tensor into b.
func WriteScalars(b []byte, s workloads.Scalars) {
	f := func(i int, v float32) { putWord(b, i, math.Float32bits(v)) }
	n := func(i int, v int32) { putWord(b, i, uint32(v)) }
	f(workloads.ScalarLR, s.LR)
	f(workloads.ScalarScale, s.Scale)
	n(workloads.ScalarNonFinite, s.NonFinite)
	n(workloads.ScalarSkip, s.Skip)
	n(workloads.ScalarStep, s.Step)
	n(workloads.ScalarGrowth, s.Growth)
	n(workloads.ScalarSkipped, s.Skipped)
	n(workloads.ScalarConsecutive, s.Consecutive)
	n(workloads.ScalarStop, s.Stop)
	f(workloads.ScalarFault, s.Fault)
}

func buildControl(c *compiler) func() {
	table, in, out := c.f32(c.in(0)), c.scalars(c.in(1)), c.scalars(c.out(0))
	rule := c.b.Attr.Control
	if rule.Rates < 1 || rule.Rates > len(table) {
		c.fail(c.in(0), "has %d learning rates, the rule uses %d", len(table), rule.Rates)
	}
	return func() {
		s := ReadScalars(in)
		s.Advance(rule, table)
		WriteScalars(out, s)
	}
}

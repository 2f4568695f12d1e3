package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// State is a copy of every tensor with a fixed place: what lives across steps
// and, beside it, inputs, gradients and step results, which the same script
// leaves equal in every mode. Activations are left out.
type State struct {
	w       *workloads.Workload
	tensors []workloads.TensorID
	ranks   [][][]byte // [rank][tensor]
}

var _ bench.State = (*State)(nil)

// State copies every rank's state. The session is drained.
func (x *Executor) State() (bench.State, error) {
	st, err := x.s.State()
	if err != nil {
		return nil, err
	}
	return st, nil
}

// State copies every rank's state. The session is drained.
func (s *Session) State() (*State, error) {
	st := &State{w: s.w, ranks: make([][][]byte, s.group.Ranks()),
		tensors: s.w.Bases(workloads.RoleState, workloads.RoleInput, workloads.RoleStep)}
	err := s.each(func(r device.Rank) error {
		all := make([][]byte, len(st.tensors))
		for i, id := range st.tensors {
			t := s.w.Tensor(id)
			all[i] = make([]byte, t.Region.Bytes)
			if err := r.Read(t.Region, all[i]); err != nil {
				return fmt.Errorf("read tensor %s: %w", t.Name, err)
			}
		}
		st.ranks[r.ID()] = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Tensors is the number of tensors copied from each rank.
func (s *State) Tensors() int { return len(s.tensors) }

// Bytes is their size over all ranks.
func (s *State) Bytes() int64 {
	n := int64(0)
	for _, r := range s.ranks {
		for _, b := range r {
			n += int64(len(b))
		}
	}
	return n
}

// Tensor returns a rank's bytes of a tensor, views included; nil if it is not
// part of the state. The caller must not change them.
func (s *State) Tensor(rank int, name string) []byte {
	t, ok := s.w.Lookup(name)
	if !ok {
		return nil
	}
	for i, id := range s.tensors {
		base := s.w.Tensor(id).Region
		if base.Space == t.Region.Space && base.Off <= t.Region.Off && t.Region.End() <= base.End() {
			return s.ranks[rank][i][t.Region.Off-base.Off : t.Region.End()-base.Off]
		}
	}
	return nil
}

// Diff returns the first difference from the reference, in rank and offset
// order, or nil.
func (s *State) Diff(reference bench.State) *bench.Difference {
	ref, ok := reference.(*State)
	if !ok || len(ref.ranks) != len(s.ranks) || !slices.Equal(ref.tensors, s.tensors) {
		return &bench.Difference{Tensor: "(all)", Detail: "the states are of different sessions"}
	}
	for rank := range s.ranks {
		if d := diffRank(s.w, s.tensors, s.ranks[rank], ref.ranks[rank]); d != nil {
			d.Rank = rank
			return d
		}
	}
	return nil
}

// DiffRanks compares the ranks with rank 0, on the tensors that data-parallel
// training keeps equal: all state. The metrics, which are the rank's own until
// they are summed at the end of an epoch or validation, are among them if
// summed says that this has happened.
func (s *State) DiffRanks(summed bool) *bench.Difference {
	var shared []workloads.TensorID
	var at []int
	for i, id := range s.tensors {
		if t := s.w.Tensor(id); t.Role == workloads.RoleState && (summed || id != s.w.Known.Metrics) {
			shared, at = append(shared, id), append(at, i)
		}
	}
	pick := func(rank int) [][]byte {
		out := make([][]byte, len(at))
		for k, i := range at {
			out[k] = s.ranks[rank][i]
		}
		return out
	}
	for rank := 1; rank < len(s.ranks); rank++ {
		if d := diffRank(s.w, shared, pick(rank), pick(0)); d != nil {
			d.Rank = rank
			return d
		}
	}
	return nil
}

func diffRank(w *workloads.Workload, tensors []workloads.TensorID, got, want [][]byte) *bench.Difference {
	for i, id := range tensors {
		if bytes.Equal(got[i], want[i]) {
			continue
		}
		at := 0
		for got[i][at] == want[i][at] {
			at++
		}
		base := w.Tensor(id)
		t, elem, ok := w.Locate(base.Region.Off + int64(at))
		if !ok {
			t, elem = base, at/int(base.DType.Bytes())
		}
		off := int(t.Region.Off-base.Region.Off) + elem*int(t.DType.Bytes())
		size := int(t.DType.Bytes())
		return &bench.Difference{Tensor: t.Name, Index: int64(elem),
			Detail: distance(t.DType, got[i][off:off+size], want[i][off:off+size])}
	}
	return nil
}

// distance words how far two elements are apart: the values, and for floating
// point the steps between representable numbers.
func distance(d workloads.DType, got, want []byte) string {
	le := binary.LittleEndian
	switch d {
	case workloads.F32:
		a, b := le.Uint32(got), le.Uint32(want)
		return fmt.Sprintf("%v, not %v (%s)", math.Float32frombits(a), math.Float32frombits(b),
			ulps(ordered(int64(a), 31), ordered(int64(b), 31)))
	case workloads.F16:
		a, b := le.Uint16(got), le.Uint16(want)
		return fmt.Sprintf("bits %#04x, not %#04x (%s)", a, b, ulps(ordered(int64(a), 15), ordered(int64(b), 15)))
	case workloads.I32:
		return fmt.Sprintf("%d, not %d", int32(le.Uint32(got)), int32(le.Uint32(want)))
	}
	return fmt.Sprintf("%d, not %d", got[0], want[0])
}

// ordered maps sign-magnitude bits to integers in the order of the numbers,
// where neighbours differ by one.
func ordered(bits int64, sign uint) int64 {
	if bits>>sign != 0 {
		return -(bits &^ (1 << sign))
	}
	return bits
}

func ulps(a, b int64) string {
	d := a - b
	if d < 0 {
		d = -d
	}
	if d == 0 {
		return "zeros of different sign"
	}
	return fmt.Sprintf("%d ulp", d)
}

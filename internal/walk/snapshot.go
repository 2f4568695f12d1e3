package walk

import (
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// Snapshot is a rank's memory at one moment: every byte of the arena that has
// a fixed place of its own, and the pinned halves. Activations and scratch,
// which live within a step, are not kept; restoring fills them with a pattern
// that decodes to NaN, so that a step reading what an earlier one left behind
// cannot pass for right.
type Snapshot struct {
	kept   []chunk
	poison []workloads.Region
	pinned []byte
}

type chunk struct {
	region workloads.Region
	data   []byte
}

// TakeSnapshot copies the rank's memory. It runs on the rank's thread with the
// rank drained.
func TakeSnapshot(r device.Rank, w *workloads.Workload) (*Snapshot, error) {
	s := &Snapshot{}
	keep := fixedRegions(w)
	for _, reg := range keep {
		c := chunk{reg, make([]byte, reg.Bytes)}
		if err := r.Read(reg, c.data); err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w", reg, err)
		}
		s.kept = append(s.kept, c)
	}
	s.poison = complement(keep, w.ArenaBytes)
	s.pinned = slices.Clone(r.Pinned())
	return s, nil
}

// Restore writes the snapshot back. It runs on the rank's thread with the rank
// drained, and may be repeated.
func (s *Snapshot) Restore(r device.Rank) error {
	for _, c := range s.kept {
		if err := r.Write(c.region, c.data); err != nil {
			return fmt.Errorf("restore %s: %w", c.region, err)
		}
	}
	for _, reg := range s.poison {
		if err := r.Fill(reg, poison); err != nil {
			return fmt.Errorf("clear %s: %w", reg, err)
		}
	}
	copy(r.Pinned(), s.pinned)
	return nil
}

// Bytes is the host memory a snapshot holds.
func (s *Snapshot) Bytes() int64 {
	n := int64(len(s.pinned))
	for _, c := range s.kept {
		n += c.region.Bytes
	}
	return n
}

// poison, all over a tensor, decodes to NaN as F32 and as F16.
const poison = 0xff

// fixedRegions are the arena's regions of every role but activation, merged
// and in order.
func fixedRegions(w *workloads.Workload) []workloads.Region {
	var all []workloads.Region
	for i := range w.Tensors {
		t := &w.Tensors[i]
		if t.Region.Space == workloads.Arena && t.Region.Bytes > 0 &&
			t.Role != workloads.RoleActivation && t.Role != workloads.RoleHost {
			all = append(all, t.Region)
		}
	}
	slices.SortFunc(all, func(a, b workloads.Region) int {
		switch {
		case a.Off < b.Off:
			return -1
		case a.Off > b.Off:
			return 1
		}
		return 0
	})
	var out []workloads.Region
	for _, reg := range all {
		if n := len(out); n > 0 && reg.Off <= out[n-1].End() {
			out[n-1].Bytes = max(out[n-1].End(), reg.End()) - out[n-1].Off
			continue
		}
		out = append(out, reg)
	}
	return out
}

// complement is what the sorted regions leave of the arena.
func complement(regions []workloads.Region, arena int64) []workloads.Region {
	var out []workloads.Region
	at := int64(0)
	for _, reg := range regions {
		if reg.Off > at {
			out = append(out, workloads.Region{Space: workloads.Arena, Off: at, Bytes: reg.Off - at})
		}
		at = max(at, reg.End())
	}
	if at < arena {
		out = append(out, workloads.Region{Space: workloads.Arena, Off: at, Bytes: arena - at})
	}
	return out
}

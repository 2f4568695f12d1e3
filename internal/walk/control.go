package walk

import (
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// hostControl is --control=host: between the finite check and the optimizer
// the host reads the scalars, applies the rule with its own copy of the
// learning rates and writes them back.
type hostControl struct {
	rank   device.Rank
	region workloads.Region
	rule   workloads.ControlRule
	rates  []float32
	buf    [workloads.ScalarWords * 4]byte
}

func newHostControl(r device.Rank, w *workloads.Workload) *hostControl {
	h := &hostControl{rank: r, rule: w.ControlRule(), rates: slices.Clone(w.Spec.Hyper.LearningRates)}
	h.region = w.Tensor(w.Known.Scalars).Region
	h.region.Bytes = int64(len(h.buf))
	return h
}

// advance runs with UPDATE idle.
func (h *hostControl) advance() error {
	if err := h.rank.Read(h.region, h.buf[:]); err != nil {
		return fmt.Errorf("host control: read the scalars: %w", err)
	}
	s := workloads.DecodeScalars(h.buf[:])
	s.Advance(h.rule, h.rates)
	s.Put(h.buf[:])
	if err := h.rank.Write(h.region, h.buf[:]); err != nil {
		return fmt.Errorf("host control: write the scalars: %w", err)
	}
	return nil
}

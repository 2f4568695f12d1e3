package walk

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// hostControl is --control=host: between the finite check and the optimizer
// the host reads the scalars, applies the rule with its own copy of the
// learning rates and writes them back.
type hostControl struct {
	rank    device.Rank
	region  workloads.Region
	rule    workloads.ControlRule
	rates   []float32
	buf     [ScalarBytes]byte
	scalars workloads.Scalars
}

func newHostControl(r device.Rank, w *workloads.Workload) (*hostControl, error) {
	h := &hostControl{rank: r, rates: append([]float32(nil), w.Spec.Hyper.LearningRates...)}
	h.region = w.Tensors[w.Known.Scalars].Region
	h.region.Bytes = ScalarBytes
	// The rule is the one the device's own node carries, so that the two
	// cannot drift apart.
	for v := range workloads.NumVariants {
		for _, b := range w.Bounds(workloads.NaNCheck, v, workloads.ControlDevice) {
			if b.Op == workloads.OpControl {
				h.rule = b.Attr.Control
				if len(h.rates) < h.rule.Rates {
					return nil, fmt.Errorf("host control: %d learning rates, the rule uses %d", len(h.rates), h.rule.Rates)
				}
				return h, nil
			}
		}
	}
	return nil, fmt.Errorf("host control: %s of model %s has no control node", workloads.NaNCheck, w.Spec.Model)
}

// advance runs with UPDATE idle.
func (h *hostControl) advance() error {
	if err := h.rank.Read(h.region, h.buf[:]); err != nil {
		return fmt.Errorf("host control: read the scalars: %w", err)
	}
	DecodeScalars(h.buf[:], &h.scalars)
	h.scalars.Advance(h.rule, h.rates)
	EncodeScalars(h.buf[:], &h.scalars)
	if err := h.rank.Write(h.region, h.buf[:]); err != nil {
		return fmt.Errorf("host control: write the scalars: %w", err)
	}
	return nil
}

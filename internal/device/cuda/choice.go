package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

var _ device.Tuner = (*Device)(nil)

// plainTuning is the name of the tuning without words.
const plainTuning = "none"

// words are the tuning's, as [ParseTuning] reads them.
func (t Tuning) words() (out []string) {
	for _, w := range []struct {
		on   bool
		word string
	}{
		{t.FillKernels, "fills"}, {t.CopyKernels, "copies"}, {t.Dependent, "dependent"}, {t.FusedJoin, "join"}, {t.NormMask, "mask"}, {t.SpaceToDepth, "stem"}, {t.Edges != EdgesStreams, string(t.Edges)},
		{t.OneKernelNorm, "onekernel"},
	} {
		if w.on {
			out = append(out, w.word)
		}
	}
	return out
}

// String is what [ParseTuning] reads, or "none".
func (t Tuning) String() string {
	if t == (Tuning{}) {
		return plainTuning
	}
	return strings.Join(t.words(), ",")
}

// graphOrder is [results.TuningChoice.GraphOrder].
func (t Tuning) graphOrder() string {
	switch t.Edges {
	case EdgesSerial:
		return "in one chain, as they were submitted"
	case EdgesHazards:
		return "by hazards: two are ordered only if they touch the same bytes, one of them writing"
	}
	return ""
}

// nodeTuning costs nothing but the host's time to capture, and leanTuning saves
// traffic as well; neither moves a bit. Measured on an H200 (AMP, mode step), join
// and mask beside nodeTuning: ResNet-50 at 64 and at 256 7 to 8 % faster, stem 2 to 3 %
// more; ResNet-18 for CIFAR at 16 1 %, at 256 4 %, stem nothing.
func (d *Device) nodeTuning() Tuning {
	return Tuning{FillKernels: true, CopyKernels: true, Dependent: d.opts.Submitter == nil}
}

func (d *Device) leanTuning() Tuning {
	t := d.nodeTuning()
	t.FusedJoin, t.NormMask = true, true
	return t
}

// Tunings are the candidates, the simplest first: what may move last bits comes
// behind what does not, and of two that differ in it alone the order of streams,
// which is eager's, before another one.
//
// Measured on an H200 (AMP; ResNet-18 for CIFAR at 16 and 256, ResNet-50 at 64 and
// 256), an order of one chain was nowhere faster than that of streams, and batch
// norms in one kernel nowhere by more than a tie beside the last candidate without
// them: so the chain is left out, and these are tried once.
func (d *Device) Tunings() []string {
	with := func(stem bool, e Edges, one bool) Tuning {
		t := d.leanTuning()
		t.SpaceToDepth, t.Edges, t.OneKernelNorm = stem, e, one
		return t
	}
	var out []string
	for _, t := range []Tuning{{}, d.nodeTuning(), d.leanTuning(), with(false, EdgesHazards, false), with(true, EdgesStreams, false),
		with(true, EdgesHazards, false), with(true, EdgesHazards, true)} {
		out = append(out, t.String())
	}
	return out
}

// hazardsBelow is how many bytes of activations a rank may have for graphs to be
// ordered by hazards without timing. Measured on an H200 (AMP, mode step, beside
// the order of streams): ResNet-18 for CIFAR at 16 (0.04 GiB) 16 to 21 % faster, at 256
// (0.6 GiB) 7 %, ResNet-50 at 64 (2.5 GiB) 2 %, at 256 (10 GiB) between equal and 2 %
// slower. In between nothing was measured; the limit is near the geometric mean.
const hazardsBelow = 5 << 30

// RuleOfThumb is the choice where nothing is timed.
func (d *Device) RuleOfThumb(w *workloads.Workload) (words, rule string) {
	t := d.leanTuning()
	t.SpaceToDepth = true
	rule = fmt.Sprintf("all that was never slower where it was measured, and hazards below %d GiB of activations a rank", hazardsBelow>>30)
	if w.Memory().Activations < hazardsBelow {
		t.Edges = EdgesHazards
	}
	return t.String(), rule
}

// Tune makes a tuning that of groups opened from now on.
func (d *Device) Tune(c results.TuningChoice) error {
	t, err := ParseTuning(c.Words)
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	if t.Dependent && d.opts.Submitter != nil {
		return fmt.Errorf("cuda: tuning %q: launcher %s has no dependent launch", c.Words, d.opts.Submitter.Name())
	}
	c.Words, c.GraphOrder, c.Candidates = t.String(), t.graphOrder(), slices.Clone(c.Candidates)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tuning, d.choice = t, c
	return nil
}

// Tuned says how the tuning was chosen.
func (d *Device) Tuned() results.TuningChoice {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.choice
}

// untune returns to what the device was made with. The caller holds mu.
func (d *Device) untune() {
	d.tuning, d.choice = d.opts.Tuning, results.TuningChoice{}
	if d.tuning != (Tuning{}) {
		d.choice = results.TuningChoice{Words: d.tuning.String(), Source: results.TuningGiven, GraphOrder: d.tuning.graphOrder()}
	}
}

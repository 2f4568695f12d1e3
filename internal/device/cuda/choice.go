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

// Tunings are the candidates, the simplest first. Those that order nodes as
// eager submission does come before those that do not, and what may move last
// bits comes last. Without a second launcher's limits the second of them has all
// that costs nothing but the host's time to capture.
func (d *Device) Tunings() []string {
	nodes := d.lean()
	with := func(e Edges, one bool) Tuning {
		t := nodes
		t.Edges, t.OneKernelNorm = e, one
		return t
	}
	var out []string
	for _, t := range []Tuning{{}, nodes, with(EdgesSerial, false), with(EdgesHazards, false), with(EdgesStreams, true), with(EdgesHazards, true)} {
		out = append(out, t.String())
	}
	return out
}

// lean is all that was never seen to cost anything, in whatever order nodes
// are. Measured on an H200 (AMP, mode step, beside none of it): ResNet-50 at 64
// 11 % faster, at 256 9 %; ResNet-18 for CIFAR as fast without join, mask and
// stem as with them.
func (d *Device) lean() Tuning {
	return Tuning{FillKernels: true, CopyKernels: true, Dependent: d.opts.Submitter == nil, FusedJoin: true, NormMask: true, SpaceToDepth: true}
}

// hazardsBelow is how many bytes of activations a rank may have for graphs to be
// ordered by hazards without timing. Measured on an H200 (AMP, mode step, beside
// the order of streams): ResNet-18 for CIFAR at 16 (0.04 GiB) 21 % faster, at 256 (0.6 GiB) 7 %,
// ResNet-50 at 64 (2.5 GiB) 2 %, at 256 (10 GiB) 1 to 2 % slower. In between
// nothing was measured; the limit is near the geometric mean.
const hazardsBelow = 5 << 30

// RuleOfThumb is the choice where nothing is timed.
func (d *Device) RuleOfThumb(w *workloads.Workload) (words, rule string) {
	t := d.lean()
	rule = fmt.Sprintf("fills, copies, join, mask, stem and dependent launch, and hazards below %d GiB of activations a rank", hazardsBelow>>30)
	if d.opts.Submitter != nil {
		rule = strings.Replace(rule, " and dependent launch", "", 1)
	}
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

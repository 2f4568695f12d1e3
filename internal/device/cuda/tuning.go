package cuda

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/internal/device/cuda/kernels"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Tuning is how the same operators run. It is chosen once a cell, for all modes
// and processes, and recorded with the plans: OneKernelNorm may move the last
// bits of results, and all of it moves times.
type Tuning struct {
	// Dependent launches the project's kernels with programmatic dependent
	// launch where the GPU has it.
	Dependent bool `json:"dependent_launch"`
	// OneKernelNorm runs small batch norms as one kernel each way; see
	// [kernels.Options]. A GPU that cannot hold such a kernel is refused.
	OneKernelNorm bool `json:"one_kernel_norm"`
	// FillKernels turns the fills with zeros that libraries put into a captured
	// graph into launches of the project's own kernel: a fill node costs the
	// host more than a microsecond in each launch of the graph, a kernel node
	// some nanoseconds. What is filled is the same.
	FillKernels bool `json:"fill_kernels"`
	// CopyKernels does the same to the copies from pinned memory: a kernel
	// reads it over the bus, in place of a copy engine.
	CopyKernels bool `json:"copy_kernels"`
	// FusedJoin and NormMask are the lowering's of the same names: less memory
	// traffic in batch norm's backward pass, the same bits. They ask for a
	// lowering with FusedNorm.
	FusedJoin bool `json:"fused_join"`
	NormMask  bool `json:"norm_mask"`
	// SpaceToDepth runs the first layer's convolution over blocks of pixels where
	// a library does so; see [kernels.Rearrange]. Its sums have another order, so
	// results may differ in their last bits.
	SpaceToDepth bool `json:"space_to_depth"`
	// Edges says what orders the nodes of a captured graph.
	Edges Edges `json:"edges"`
}

// Edges is what orders the nodes of a captured graph. Operators, and so
// results, are the same with each; only how much may run at once differs.
type Edges string

const (
	// EdgesStreams orders nodes as the streams and joins that were recorded do.
	EdgesStreams Edges = ""
	// EdgesSerial orders all nodes one after another, as they were submitted:
	// forks and joins inside a graph cost time on the GPU.
	EdgesSerial Edges = "serial"
	// EdgesHazards orders two operators if, and only if, both touch the same
	// bytes and one of them writes. It goes with [workloads.Target.Beside]:
	// what shares scratch is ordered.
	EdgesHazards Edges = "hazards"
)

// tuningRecord is the tuning as it stands among the plans, with how it was
// chosen.
type tuningRecord struct {
	Key string `json:"key"`
	Tuning
	results.TuningChoice
}

// ParseTuning reads words with commas between them: "dependent", "onekernel",
// "fills", "copies", "join", "mask", "stem", "serial", "hazards"; without words, or
// with "none" alone, it is the default. A word given twice, or against another
// one, is an error, as is a comma without words around it.
func ParseTuning(words string) (t Tuning, err error) {
	if words == "" || words == plainTuning {
		return Tuning{}, nil
	}
	list := strings.Split(words, ",")
	for i, w := range list {
		switch {
		case w != "" && slices.Contains(list[:i], w):
			return Tuning{}, fmt.Errorf("tuning %q: word %q stands there twice", words, w)
		case w == plainTuning:
			return Tuning{}, fmt.Errorf("tuning %q: %q stands alone", words, w)
		case (w == string(EdgesSerial) || w == string(EdgesHazards)) && t.Edges != EdgesStreams:
			return Tuning{}, fmt.Errorf("tuning %q: %q and %q exclude each other", words, t.Edges, w)
		case w == "dependent":
			t.Dependent = true
		case w == "onekernel":
			t.OneKernelNorm = true
		case w == "fills":
			t.FillKernels = true
		case w == "copies":
			t.CopyKernels = true
		case w == "join":
			t.FusedJoin = true
		case w == "mask":
			t.NormMask = true
		case w == "stem":
			t.SpaceToDepth = true
		case w == string(EdgesSerial), w == string(EdgesHazards):
			t.Edges = Edges(w)
		default:
			return Tuning{}, fmt.Errorf("tuning %q: word %q; known: dependent, onekernel, fills, copies, join, mask, stem, and one of serial and hazards", words, w)
		}
	}
	return t, nil
}

// kernels are the options that the project's kernels are planned with.
func (t Tuning) kernels() kernels.Options { return kernels.Options{OneKernelNorm: t.OneKernelNorm} }

// lowering is the node list that a device with lowering l runs.
func (t Tuning) lowering(l workloads.Lowering) workloads.Lowering {
	l.FusedJoin = l.FusedJoin || t.FusedJoin && l.FusedNorm
	l.NormMask = l.NormMask || t.NormMask && l.FusedNorm
	return l
}

// Tuning is what groups opened from now on run with.
func (d *Device) Tuning() Tuning {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tuning
}

// takeTuning reads a plan handed over if it is the tuning.
func takeTuning(raw json.RawMessage) (t Tuning, c results.TuningChoice, ok bool, err error) {
	var r tuningRecord
	err = json.Unmarshal(raw, &struct{ Key *string }{&r.Key})
	if err != nil || r.Key != results.TuningKey {
		return Tuning{}, results.TuningChoice{}, false, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Tuning{}, results.TuningChoice{}, false, err
	}
	switch r.Edges {
	case EdgesStreams, EdgesSerial, EdgesHazards:
	default:
		return Tuning{}, results.TuningChoice{}, false, fmt.Errorf("edges %q are unknown", r.Edges)
	}
	if r.Source == "" { // of a program that did not say
		r.TuningChoice = results.TuningChoice{Words: r.Tuning.String(), Source: results.TuningGiven, GraphOrder: r.Tuning.graphOrder()}
	}
	return r.Tuning, r.TuningChoice, true, nil
}

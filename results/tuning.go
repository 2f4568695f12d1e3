package results

import "encoding/json"

// TuningKey is the key of a cell's tuning among its plans, where no node's can
// be.
const TuningKey = "tuning"

// TuningChoice says which way of running its operators a device took for a
// cell, for all modes and processes, and what the other ways would have taken.
// It stands among the cell's plans, beside what the device itself keeps of it.
type TuningChoice struct {
	// Words name the way as --tune takes them.
	Words string `json:"words,omitempty"`
	// Source says how it was chosen: [TuningTimed], [TuningRule] or
	// [TuningGiven]. Empty: by nobody, and it is the device's plain way.
	Source string `json:"source,omitempty"`
	// Rule is how the candidates were compared, or the rule of thumb.
	Rule string `json:"rule,omitempty"`
	// GraphOrder says what orders the nodes of graphs where that is not what
	// orders the same work when it is submitted eagerly.
	GraphOrder string `json:"graph_order,omitempty"`
	// Candidates were compared, the simplest first.
	Candidates []TuningCandidate `json:"candidates,omitempty"`
}

// Sources of a tuning.
const (
	TuningTimed = "timed"
	TuningRule  = "rule"
	TuningGiven = "given"
)

// TuningCandidate is one way, run by mode step in a session of its own in the
// process that chose.
type TuningCandidate struct {
	Words string `json:"words"`
	// StepTimeNs is the host's time of a step with steps queued one behind
	// another, the median of BlocksNs, each of which is a block's mean.
	StepTimeNs float64   `json:"step_time_ns"`
	BlocksNs   []float64 `json:"blocks_ns,omitempty"`
	// SubmitTimeNs is the host's time in the submission of one step to a
	// drained device, the median of some.
	SubmitTimeNs float64 `json:"submit_time_ns"`
	// GraphOrder is [TuningChoice.GraphOrder] of this way.
	GraphOrder string `json:"graph_order,omitempty"`
	// ArenaBytes is the device memory of one rank.
	ArenaBytes int64 `json:"arena_bytes"`
	// Failure says why it was left out; then nothing was timed.
	Failure string `json:"failure,omitempty"`
}

// Tuning returns how the cell's tuning was chosen; false where no plan says.
func (c *Cell) Tuning() (TuningChoice, bool) {
	for _, raw := range c.Plans {
		var t struct {
			Key string `json:"key"`
			TuningChoice
		}
		if json.Unmarshal(raw, &t) == nil && t.Key == TuningKey && t.Source != "" {
			return t.TuningChoice, true
		}
	}
	return TuningChoice{}, false
}

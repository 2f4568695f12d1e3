package bench

import (
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// VerifyRequest asks for the fixed matrix behind the verify command on one
// workload.
type VerifyRequest struct {
	// Cell gives workload, batch, ranks, device, and, where not 0, resolutions
	// and last batches; the matrix sets precision, optimizer, EMA and frozen.
	Cell           results.CellKey
	Configurations []results.ConfigurationKey
	Seed           uint64
	Data           data.Options
	// Tune is a plan's, but nothing is timed: auto is the rule of thumb.
	Tune     string
	Progress func(string)
}

// VerifyReport is what the matrix found. A failure is the report's too: the
// caller gets both, the report and a [*DisagreementError].
type VerifyReport struct {
	Device   string `json:"device"`
	Workload string `json:"workload"`
	Ranks    int    `json:"ranks"`
	Equal    bool   `json:"equal"`
	// Problems has one sentence for each thing that is wrong, with its place.
	Problems  []string         `json:"problems"`
	Matrix    []VerifyRun      `json:"matrix"`
	SubGraphs []VerifySubGraph `json:"sub_graphs"`
	Edges     VerifyEdges      `json:"edges"`
	// Counts are of operators the device executed.
	Counts []VerifyCount `json:"counts"`
}

// VerifyRun is one entry of the matrix, run in all configurations.
type VerifyRun struct {
	Name           string                     `json:"name"`
	Cell           results.CellKey            `json:"cell"`
	Configurations []results.ConfigurationKey `json:"configurations"`
	Verify         results.Verify             `json:"verify"`
	// Tuning is how the device ran it; null where it has no choice.
	Tuning *results.TuningChoice `json:"tuning"`
}

// States of a sub-graph after the matrix.
const (
	SubGraphRan           = "ran"            // changed bytes of its declared output in at least one run
	SubGraphNotRun        = "not run"        // did not, though it should have
	SubGraphNotApplicable = "not applicable" // collectives with one rank
)

// VerifySubGraph says what became of one of the 33.
type VerifySubGraph struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Why      string `json:"why,omitempty"`
	Executed int64  `json:"executed"` // operators, over the whole matrix
}

// VerifyEdges is the hazard check put to the test: each edge of the schedule
// that no other path implies is dropped in turn, and must be reported.
type VerifyEdges struct {
	Dropped  int           `json:"dropped"`
	Reported int           `json:"reported"`
	Implied  []ImpliedEdge `json:"implied"`
}

// ImpliedEdge is an edge that another path makes redundant.
type ImpliedEdge struct {
	Run     string   `json:"run"`
	Waiting string   `json:"waiting"`
	Waited  string   `json:"waited"`
	Join    string   `json:"join"`
	Path    []string `json:"path"`
}

// VerifyCount is how many operators of one sub-graph a rank executed in a
// variant, in one run and configuration.
type VerifyCount struct {
	Run           string                   `json:"run"`
	Configuration results.ConfigurationKey `json:"configuration"`
	Rank          int                      `json:"rank"`
	Variant       int                      `json:"variant"`
	SubGraph      string                   `json:"sub_graph"`
	Operators     int64                    `json:"operators"`
}

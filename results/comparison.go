package results

import "encoding/json"

// Verdicts on a row and on a comparison. Of a metric where higher is better,
// slower means lower.
const (
	Faster    = "faster"
	Same      = "same" // no difference that matters was found
	Slower    = "slower"
	Ambiguous = "ambiguous" // cannot be told; RowVerdict.Next says what to do
)

// Reasons for a row's verdict.
const (
	Significant     = "significant"       // slower, faster: all conditions hold
	Confirmed       = "confirmed"         // slower: measuring both sides again agrees
	NotRepeated     = "not_repeated"      // same: the first measurement said slower, the second did not
	NotConfirmed    = "not_confirmed"     // ambiguous: slower, and the second measurement cannot tell or is missing
	BaseNotMeasured = "base_not_measured" // ambiguous: slower twice, the second time without base beside it
	BaseSlowerToo   = "base_slower_too"   // ambiguous: slower, and measured again base is as slow
	NoEvidence      = "no_evidence"       // same: neither significant nor large enough
	BelowThreshold  = "below_threshold"   // same: significant, but too small to matter
	NotSignificant  = "not_significant"   // ambiguous: large enough, but the test does not exclude chance
	TooNoisy        = "too_noisy"         // ambiguous: no difference found, but a large one could hide
	TooFewProcesses = "too_few_processes" // ambiguous: no outcome of the test could be significant
	NoFigures       = "no_figures"        // ambiguous: a side has none
	BadFigures      = "bad_figures"       // ambiguous: a figure is not a number above 0
)

// RowVerdict is a row's verdict with every number behind it. A figure that
// does not exist is null. Effects are relative: 0.02 is 2 %.
type RowVerdict struct {
	Row       RowKey `json:"row"`
	Unit      string `json:"unit"`
	Direction string `json:"direction"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	// Why is the reason in a sentence with its numbers; Next says what to do
	// about it, and is empty where there is nothing to do.
	Why  string `json:"why"`
	Next string `json:"next"`

	Base RowSide `json:"base"`
	Head RowSide `json:"head"`
	// Ratio is head over base, of the sides' medians. Interval has the factors
	// between head and base that the Mann-Whitney test does not reject (Hodges
	// and Lehmann), for this row alone and over the processes of these runs.
	Ratio    *float64  `json:"ratio"`
	Interval *Interval `json:"interval"`
	// Noise is the relative standard deviation of a run's median when nothing
	// changed; null if not known. NoiseRuns is how many runs it is from, 0 if
	// it was handed in.
	Noise     *float64 `json:"noise"`
	NoiseRuns int      `json:"noise_runs"`
	// Threshold is the least effect that counts: the larger of the least that
	// matters and a multiple of the noise. Slower begins at a ratio of
	// 1 + Threshold, faster ends at 1 / (1 + Threshold).
	Threshold float64 `json:"threshold"`

	// U counts pairs of processes in which head is above base, ties half. P is
	// two-sided and exact, AdjustedP is Holm's over the family's rows and is
	// compared with Alpha. FloorP is the least P that so many processes can
	// reach.
	U         *float64 `json:"u"`
	P         *float64 `json:"p"`
	AdjustedP *float64 `json:"adjusted_p"`
	FloorP    *float64 `json:"floor_p"`
	Alpha     float64  `json:"alpha"`
	Family    int      `json:"family"`
	// NeedBase and NeedHead are the least processes a side with which a row of
	// this family can be significant.
	NeedBase int `json:"need_base"`
	NeedHead int `json:"need_head"`

	// First is the first measurement's verdict, once a second was taken of it;
	// Confirmation is the second's own, and BaseAgain that of base's second
	// measurement, as head, against its first; null where base was not measured
	// again. The other fields but the verdict and its reason stay those of the
	// first.
	First        string      `json:"first,omitempty"`
	Confirmation *RowVerdict `json:"confirmation,omitempty"`
	BaseAgain    *RowVerdict `json:"base_again,omitempty"`
}

// RowSide is one side of a row: its runs' process medians, in the metric's
// unit.
type RowSide struct {
	Runs [][]float64 `json:"runs"`
	// Median is the median of the runs' medians; null without figures.
	Median    *float64 `json:"median"`
	Processes int      `json:"processes"` // over all runs
}

// FieldDifference is a fact in which two sides are not known to agree.
type FieldDifference struct {
	Name string `json:"name"`
	Role string `json:"role"` // subject, bed
	// Base and Head are the values that the sides' records have; one that is
	// not known is empty.
	Base []string `json:"base"`
	Head []string `json:"head"`
	// Why says why a value is not known.
	Why string `json:"why"`
}

// ExactDifference is a count or a choice that is not measured but known, and
// differs: launches, kernels, nodes of graphs, library plans.
type ExactDifference struct {
	Cell CellKey `json:"cell"`
	// Configuration is null where the cell as a whole differs.
	Configuration *ConfigurationKey `json:"configuration"`
	What          string            `json:"what"` // launches.host, kernels, graph_nodes.memcpy, plans
	Base          string            `json:"base"`
	Head          string            `json:"head"`
}

// CarriedWarning is a warning of one of the records compared, or of the
// comparison itself (then without Record).
type CarriedWarning struct {
	Side    string   `json:"side"` // base, head; empty for the comparison's own
	Record  string   `json:"record"`
	Cell    *CellKey `json:"cell"` // null for the record as a whole
	Warning Warning  `json:"warning"`
}

// Compared names a record that took part.
type Compared struct {
	Side     string `json:"side"` // base, head, confirming base, confirming head
	Name     string `json:"name"`
	Created  string `json:"created"` // RFC 3339
	Revision string `json:"revision"`
	Status   string `json:"status"`
}

// Sides of a comparison.
const (
	BaseSide  = "base"
	HeadSide  = "head"
	BaseAgain = "confirming base"
	HeadAgain = "confirming head"
)

// Names of the comparison's format.
const (
	ComparisonName  = "trbench.comparison"
	ComparisonMajor = 1
	ComparisonMinor = 0
)

// Comparison is what comparing two sets of records found.
type Comparison struct {
	Schema Schema `json:"schema"`
	// Verdict is slower if a row is, else ambiguous if something cannot be
	// told or is missing, else faster if a row is, else same.
	Verdict string `json:"verdict"`
	// Confirmed says that slower rows were measured a second time.
	Confirmed bool       `json:"confirmed"`
	Records   []Compared `json:"records"`
	// Suspects are differing facts of the subject: what may be the cause.
	Suspects []FieldDifference `json:"suspects"`
	// Allowed are differing facts of the bed that were let pass.
	Allowed []FieldDifference `json:"allowed"`
	Rows    []RowVerdict      `json:"rows"`
	// OnlyBase and OnlyHead are rows that the other side lacks.
	OnlyBase []RowKey          `json:"only_base"`
	OnlyHead []RowKey          `json:"only_head"`
	Exact    []ExactDifference `json:"exact"`
	// Partial says in sentences what is missing from the records.
	Partial  []string         `json:"partial"`
	Warnings []CarriedWarning `json:"warnings"`
}

// MarshalJSON makes lists appear as [] rather than null.
func (c Comparison) MarshalJSON() ([]byte, error) {
	type plain Comparison
	c.Records, c.Suspects, c.Allowed, c.Rows = notNil(c.Records), notNil(c.Suspects), notNil(c.Allowed), notNil(c.Rows)
	c.OnlyBase, c.OnlyHead, c.Exact = notNil(c.OnlyBase), notNil(c.OnlyHead), notNil(c.Exact)
	c.Partial, c.Warnings = notNil(c.Partial), notNil(c.Warnings)
	return json.Marshal(plain(c))
}

// MarshalJSON makes lists appear as [] rather than null.
func (s RowSide) MarshalJSON() ([]byte, error) {
	type plain RowSide
	s.Runs = notNil(s.Runs)
	return json.Marshal(plain(s))
}

package results

import "time"

// Series is one row over many runs, oldest first.
type Series struct {
	Row       RowKey  `json:"row"`
	Unit      string  `json:"unit"`
	Direction string  `json:"direction"`
	Points    []Point `json:"points"`
}

// Point is what one run measured of a row.
type Point struct {
	// Run names the record; Created is when its run began. Sequence is the
	// number of its night, 0 outside a history.
	Run      string    `json:"run"`
	Created  time.Time `json:"created"`
	Sequence int       `json:"sequence"`
	// Value is the median of Processes, which are the process medians in
	// process order; both in the series' unit.
	Value     float64   `json:"value"`
	Processes []float64 `json:"processes"`
}

// ChangePoint is where the level of a series changes for longer than chance
// explains.
type ChangePoint struct {
	// ID stays the same while more nights come in.
	ID   string `json:"id"`
	Row  RowKey `json:"row"`
	Unit string `json:"unit"`
	// Index, Night, Run and Created are those of the first point of the new
	// level.
	Index   int       `json:"index"`
	Night   int       `json:"night"`
	Run     string    `json:"run"`
	Created time.Time `json:"created"`
	// Before and After are the means from the change point before it, and to
	// the next one.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// P is of Student's t test between both parts. It was the best of many
	// places, so it is no error rate.
	P      float64 `json:"p"`
	Slower bool    `json:"slower"`
	// Provisional says that the new level is only a few nights old, at most
	// [Tail]: it may still turn out to be a bad night.
	Provisional bool `json:"provisional"`
}

// Tail is how many of the last nights of a series are provisional: a single bad
// night looks like a change of level on its first night, and no more on the
// third.
const Tail = 3

// Change is a change point with what was said of it.
type Change struct {
	ChangePoint
	// State is one of [Open], [Provisional], [Acknowledged], [Expired] and [Small].
	State string `json:"state"`
	// Acknowledgement is the last one, null where there was none or the change
	// is provisional.
	Acknowledgement *Acknowledgement `json:"acknowledgement"`
}

// States of a change point.
const (
	Provisional  = "provisional" // the next nights may take it back
	Open         = "open"        // nobody has accepted it
	Acknowledged = "acknowledged"
	Expired      = "expired" // it was acknowledged until a day that is over
	// Small is one of less than LeastEffect that nobody acknowledged: it is no
	// chance, or one of a few that hundreds of nights bring, and does not matter.
	Small = "small"
)

// LeastEffect is the least relative change that matters, up or down, of rows
// that are compared and of levels over nights.
const LeastEffect = 0.01

// Matters says whether a change is large enough to be looked at.
func (c ChangePoint) Matters() bool {
	ratio := c.After / c.Before
	return ratio >= 1+LeastEffect || ratio <= 1/(1+LeastEffect)
}

// Unheeded says that a change matters and nobody has accepted it, or not until
// today.
func (c Change) Unheeded() bool { return c.State == Open || c.State == Expired }

// Acknowledgement says that a change point is known and accepted until a day.
type Acknowledgement struct {
	ID string `json:"id"` // the change point's
	// Until is the first moment at which it no longer holds.
	Until time.Time `json:"until"`
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	When  time.Time `json:"when"`
}

// LastDay is the day on which it holds last.
func (a Acknowledgement) LastDay() string { return a.Until.AddDate(0, 0, -1).Format(time.DateOnly) }

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
	// Provisional says that the new level is only a few nights old: it may
	// still turn out to be a bad night.
	Provisional bool `json:"provisional"`
}

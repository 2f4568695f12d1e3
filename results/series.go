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
	// Run names the record; Created is when its run began.
	Run     string    `json:"run"`
	Created time.Time `json:"created"`
	// Value is the median of Processes, which are the process medians in
	// process order; both in the series' unit.
	Value     float64   `json:"value"`
	Processes []float64 `json:"processes"`
}

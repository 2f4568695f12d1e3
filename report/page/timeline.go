package page

// Timeline is a stretch of recorded time of one configuration, as the page's
// script is to draw it: lanes of spans over one axis, and the gaps between
// them, each of which can be zoomed to. It is the shape of an element of
// "timelines" in the page's data; the page has no view of it yet.
//
// Spans lie in columns of equal length rather than in objects, as a step has
// thousands of them and the page counts bytes.
type Timeline struct {
	// Cell and Configuration say what ran, in the words of the tables.
	Cell          string `json:"cell"`
	Configuration string `json:"configuration"`
	// Source names the recording.
	Source string `json:"source"`
	// Names are the texts that spans refer to by their place.
	Names []string `json:"names"`
	// LengthNs is where the axis ends; it begins at 0.
	LengthNs float64 `json:"length_ns"`
	Lanes    []Lane  `json:"lanes"`
	Gaps     []Gap   `json:"gaps"`
}

// Lane is a stream or a host thread: spans that do not overlap, in the order
// of their starts.
type Lane struct {
	Title string `json:"title"`
	// Clock is device or host: the two never share a lane.
	Clock string `json:"clock"`
	// StartNs and EndNs are on the timeline's axis, Name an index into
	// Names for each.
	StartNs []float64 `json:"start_ns"`
	EndNs   []float64 `json:"end_ns"`
	Name    []int     `json:"name"`
}

// Gap is a stretch in which the device had no work, with what it waited for.
type Gap struct {
	StartNs float64 `json:"start_ns"`
	EndNs   float64 `json:"end_ns"`
	// Cause is a name, by its place in Names.
	Cause int `json:"cause"`
	// Before and After are the work on either side, by place in Names.
	Before int `json:"before"`
	After  int `json:"after"`
}

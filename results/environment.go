package results

import "time"

// Roles of an environment field in a comparison.
const (
	// Subject is what a comparison exists for: revision, driver, libraries.
	Subject = "subject"
	// Bed is what must be the same on both sides: the machine.
	Bed = "bed"
)

// Environment is the machine and the software as a run found them.
type Environment struct {
	Fields []EnvironmentField `json:"fields"`
	// Readings change from minute to minute: load, temperature, clocks.
	Readings []Reading `json:"readings"`
	// Calibration holds what this machine takes for known small things.
	Calibration []Reading `json:"calibration"`
	// Moments are the machine at the start and at the end of each session: the
	// run's first, and one more each time it was resumed. The end of one that
	// was killed is that of its last finished process. Empty in records that
	// were made without.
	Moments []Moment `json:"moments"`
}

// Whens of a moment.
const (
	AtStart = "start"
	AtEnd   = "end"
)

// Spread sums up a reading that was taken many times, over all processes.
type Spread struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"` // over processes, of each process's
	Max    float64 `json:"max"`
	N      int     `json:"n"`
	// Processes holds each process's median, in process order.
	Processes []float64 `json:"processes"`
}

// Moment is the machine at one time of a run, with nothing of the run at work.
type Moment struct {
	Session  int       `json:"session"` // 0 is the first
	When     string    `json:"when"`    // start, end
	Time     time.Time `json:"time"`
	Readings []Reading `json:"readings"`
}

// EnvironmentField is one fact. An empty value means that it could not be
// read, and Why says so.
type EnvironmentField struct {
	Name  string `json:"name"` // "gpu.name", "cpu.model", "go.version"
	Value string `json:"value"`
	Role  string `json:"role"`
	Why   string `json:"why"`
}

// Reading is a figure of the machine with its unit.
type Reading struct {
	Name  string  `json:"name"` // "load1", "clock.read_ns"
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	N     int     `json:"n"` // observations behind it
}

// Field returns a field by name.
func (e Environment) Field(name string) (EnvironmentField, bool) {
	for _, f := range e.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return EnvironmentField{}, false
}

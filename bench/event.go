package bench

import (
	"github.com/tech-renaissance/trbench/results"
)

// Event is something a replicate tells while it runs: one line of JSON from
// its process. Exactly one field is set.
type Event struct {
	// Phase says in a few words what happens next.
	Phase string `json:"phase,omitempty"`
	Taken *Taken `json:"taken,omitempty"`
	// Cell is the end of a good replicate: all but the samples.
	Cell *results.Cell `json:"cell,omitempty"`
	// Disagreement and Failure are its bad ends.
	Disagreement *DisagreementError `json:"disagreement,omitempty"`
	Failure      string             `json:"failure,omitempty"`
}

// Taken are samples of a configuration, in the order they were taken.
type Taken struct {
	Configuration int     `json:"configuration"` // index in the request
	Block         int     `json:"block"`
	Position      int     `json:"position"`
	Values        []Value `json:"values"`
	// Timed says that a block was timed, rather than what comes once.
	Timed bool `json:"timed"`
}

// Value is a sample without its place.
type Value struct {
	Metric string  `json:"metric"`
	Rank   int     `json:"rank"`
	Value  float64 `json:"value"`
}

// sampleSet gathers what is taken, by configuration and metric.
type sampleSet struct {
	process int
	by      []map[string][]results.Sample
}

func newSampleSet(configurations, process int) *sampleSet {
	s := &sampleSet{process: process, by: make([]map[string][]results.Sample, configurations)}
	for i := range s.by {
		s.by[i] = map[string][]results.Sample{}
	}
	return s
}

// add reports false for a configuration that was not asked for.
func (s *sampleSet) add(t Taken) bool {
	if t.Configuration < 0 || t.Configuration >= len(s.by) {
		return false
	}
	m := s.by[t.Configuration]
	for _, v := range t.Values {
		m[v.Metric] = append(m[v.Metric], results.Sample{
			Process: s.process, Rank: v.Rank, Block: t.Block, Position: t.Position, Value: v.Value,
		})
	}
	return true
}

// metrics are those of a configuration, in the order of their definitions.
func (s *sampleSet) metrics(configuration int) []results.Metric {
	var out []results.Metric
	for _, d := range results.Definitions() {
		if samples := s.by[configuration][d.Name]; len(samples) > 0 {
			out = append(out, results.NewMetric(d.Name, samples))
		}
	}
	return out
}

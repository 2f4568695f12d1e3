package device

import (
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Tuner is a [Chooser] that can run the operators of a workload in more than
// one way: how they are launched, and what orders the nodes of graphs. A way
// has a name of words, as --tune takes them. It is one for all modes and
// processes of a cell, so it is part of what is handed over as plans.
type Tuner interface {
	Chooser
	// Tunings are ways worth a comparison, the simplest first. Not every GPU
	// can run all of them: opening a group or capturing may fail.
	Tunings() []string
	// RuleOfThumb is the way to take for a workload if nothing is timed, and
	// the rule in a sentence.
	RuleOfThumb(w *workloads.Workload) (words, rule string)
	// Tune makes a way that of groups opened, and of workloads built, from now
	// on. A choice with a source is part of Plans. It fails for words that it does
	// not know and leaves things as they were.
	Tune(c results.TuningChoice) error
	// Tuned is how the way in use was chosen; without a source, by nobody.
	Tuned() results.TuningChoice
}

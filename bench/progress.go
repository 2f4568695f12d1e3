package bench

import (
	"strings"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Progress is how far a run is.
type Progress struct {
	Cell, Cells        int // the current one's index, and how many
	Process, Processes int
	Key                results.CellKey
	// Phase says in a few words what happens now.
	Phase string
	// Estimates are the cell's step times so far, in the plan's order.
	Estimates []Estimate
	// Done is the share of the work that is done, from 0 to 1; Left the time
	// the rest will take at this pace, 0 while it is not known.
	Done float64
	Left time.Duration
	// CellDone says that the cell is finished, Kept that the record held all of
	// it already.
	CellDone, Kept bool
}

// Estimate is a configuration's step time so far: the median of all blocks.
type Estimate struct {
	Key    results.ConfigurationKey
	StepNs float64
	Blocks int
}

// A replicate's work in parts of one block of one configuration: what a
// configuration's verification and warm-up take about.
const prepareBlocks = 3

// watcher turns the events of replicates into progress.
type watcher struct {
	run        *Run
	now        Progress
	cell       int         // whose steps are kept; -1 for none
	steps      [][]float64 // of that cell, by configuration
	ran        bool        // a replicate of it
	total, sum float64
	before     float64 // of sum, replicates that are over
	resumed    float64 // of sum, what was done when the run began
}

func newWatcher(r *Run) *watcher {
	w := &watcher{run: r, cell: -1}
	w.now.Cells, w.now.Processes = len(r.Plan.Cells), r.Plan.Processes
	at := map[results.CellKey]int{}
	for i, k := range r.Plan.Cells {
		at[k] = i
		w.total += w.whole(i) * float64(r.Plan.Processes)
	}
	for _, c := range r.Record.Cells {
		i, ok := at[c.Key]
		for _, p := range c.Processes {
			if ok && p.Status == results.Done && p.Index < r.Plan.Processes {
				w.before += w.whole(i)
			}
		}
	}
	w.sum, w.resumed = w.before, w.before
	return w
}

// whole is the work of a replicate of a cell.
func (w *watcher) whole(i int) float64 {
	p := w.run.Plan
	return weight(p.Cells[i]) * float64(len(p.Configurations)*(p.Blocks+prepareBlocks))
}

// replicate begins one and returns what is to be told its events.
func (w *watcher) replicate(i, process int) func(Event) {
	if w.cell != i {
		w.take(i)
	}
	w.ran = true
	w.now.Cell, w.now.Process, w.now.Key = i, process, w.run.Plan.Cells[i]
	// What was counted of replicates before may be less than they were.
	w.sum = w.before
	w.before += w.whole(i)
	unit := weight(w.now.Key)
	w.tell("starts")
	return func(e Event) {
		switch {
		case e.Phase != "":
			if strings.HasPrefix(e.Phase, "warm up ") {
				w.sum += prepareBlocks * unit
			}
			w.tell(e.Phase)
		case e.Taken != nil && e.Taken.Timed:
			w.sum += unit
			w.note(e.Taken)
			w.tell(w.now.Phase)
		}
	}
}

// take turns to a cell and begins with what the record holds of it.
func (w *watcher) take(i int) {
	w.ran = w.ran && w.cell == i
	w.cell, w.steps = i, make([][]float64, len(w.run.Plan.Configurations))
	c := w.run.lookup(i)
	if c == nil {
		return
	}
	for j, k := range w.run.Plan.Configurations {
		x := findConfiguration(c, func(have results.ConfigurationKey) bool { return have == k })
		if x == nil {
			continue
		}
		if m := x.Metric(results.StepTimeNs); m != nil {
			for _, s := range m.Samples {
				w.steps[j] = append(w.steps[j], s.Value)
			}
		}
	}
}

// note keeps a block's step time for the estimates.
func (w *watcher) note(t *Taken) {
	if t.Configuration < 0 || t.Configuration >= len(w.steps) {
		return
	}
	for _, v := range t.Values {
		if v.Metric == results.StepTimeNs {
			w.steps[t.Configuration] = append(w.steps[t.Configuration], v.Value)
		}
	}
}

func (w *watcher) cellDone(i int) {
	w.take(i) // what a failed replicate took is not in the record
	w.now.Cell, w.now.Key, w.now.CellDone, w.now.Kept = i, w.run.Plan.Cells[i], true, !w.ran
	w.sum = w.before
	w.tell("done")
	w.now.CellDone, w.now.Kept = false, false
}

func (w *watcher) tell(phase string) {
	if w.run.Watch == nil {
		return
	}
	w.now.Phase, w.now.Estimates = phase, nil
	for i, s := range w.steps {
		if len(s) > 0 {
			w.now.Estimates = append(w.now.Estimates, Estimate{w.run.Plan.Configurations[i], results.Median(s), len(s)})
		}
	}
	w.now.Done = min(w.sum/max(w.total, 1), 1)
	w.now.Left = w.left()
	w.run.Watch(w.now)
}

// left is what remains at the pace of this run; a resumed run does not count
// what was done before it.
func (w *watcher) left() time.Duration {
	if w.sum-w.resumed < w.total/50 {
		return 0
	}
	elapsed := w.run.Clock.Now() - w.run.begin
	return time.Duration(float64(elapsed) * (w.total - w.sum) / (w.sum - w.resumed))
}

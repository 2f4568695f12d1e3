package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
)

// watch shows how far a run is, on stderr: a bar in a terminal, elsewhere a line
// a cell if it is asked for. What is run, and from which seed, is said in any
// case.
type watch struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil unless in a terminal
	lines bool                     // a line a cell, without a bar
	begun time.Time                // of the current cell
	now   func() time.Time
	drawn time.Time
	cell  int
	width func() int // of the terminal
}

// barSteps is how finely the bar moves; drawEvery how often, at most: drawing
// takes processor time from what is measured.
const (
	barSteps  = 1000
	drawEvery = 250 * time.Millisecond
)

func newWatch(env *Env, plan bench.Plan, lines bool) *watch {
	w := &watch{out: env.Stderr, lines: lines, now: env.Now, cell: -1, width: env.Columns}
	if env.Terminal {
		w.bar = progressbar.NewOptions(barSteps,
			progressbar.OptionSetWriter(env.Stderr), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(),
			progressbar.OptionShowDescriptionAtLineEnd())
	}
	fmt.Fprintf(w.out, "%s, %s, %s a cell, seed %d\n", count(len(plan.Cells), "cell"),
		count(len(plan.Configurations), "configuration"), processes(plan.Processes), plan.Seed)
	return w
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// tell shows progress. A warning about the display is none about the run, so
// failures to draw are ignored.
func (w *watch) tell(p bench.Progress) {
	now := w.now()
	if p.Cell != w.cell {
		w.cell, w.begun = p.Cell, now
	}
	if w.bar == nil {
		if p.CellDone && w.lines {
			took := fmt.Sprintf("%.1f s", now.Sub(w.begun).Seconds())
			if p.Kept {
				took = "kept"
			}
			fmt.Fprintf(w.out, "[%d/%d] %s: %s%s\n", p.Cell+1, p.Cells, p.Key.Name(), took, estimates(p))
		}
		return
	}
	if now.Sub(w.drawn) < drawEvery && !p.CellDone {
		return
	}
	w.drawn = now
	w.bar.Describe(w.fit(line(p)))
	_ = w.bar.Set(min(int(p.Done*barSteps), barSteps-1)) // the last step ends the bar
}

// barColumns are what the bar itself takes; defaultColumns a terminal that does
// not say how wide it is.
const (
	barColumns     = 32
	defaultColumns = 100
)

// fit cuts a line to what is left beside the bar.
func (w *watch) fit(text string) string {
	columns := defaultColumns
	if w.width != nil {
		if n := w.width(); n > 0 {
			columns = n
		}
	}
	return text[:min(len(text), max(columns-barColumns, 0))] // ASCII, as all names here
}

// line is what stands beside the bar.
func line(p bench.Progress) string {
	text := ""
	if p.Left > 0 {
		text = fmt.Sprintf("%s left; ", p.Left.Round(time.Second))
	}
	return text + fmt.Sprintf("%s, process %d of %d%s; %s", p.Key.Name(), p.Process+1, p.Processes, estimates(p), p.Phase)
}

// maxEstimates fit a line.
const maxEstimates = 3

// estimates are the step times so far, of the first few configurations.
func estimates(p bench.Progress) string {
	var parts []string
	for _, e := range p.Estimates[:min(len(p.Estimates), maxEstimates)] {
		name := e.Key.String()
		if e.Key.DispatchNs > 0 {
			name += "+" + report.Duration(float64(e.Key.DispatchNs))
		}
		parts = append(parts, name+" "+report.Duration(e.StepNs))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// end clears the bar.
func (w *watch) end() {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
}

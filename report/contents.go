package report

import (
	"fmt"
	"slices"
	"strings"
)

// Contents is all that a report says, as words and numbers for a renderer
// outside this package. All text has been made fit for one line; none of it is
// escaped for any format.
type Contents struct {
	// Records are the records in a line each: what ran where and when.
	Records []string
	// Verdict is the headlines in sentences, the first one the answer.
	Verdict []string
	// Columns name what tells headlines apart: the records' differences and
	// the cells'.
	Columns   []string
	Headlines []Headline
	// HeadlineAxis holds all headlines with their intervals, and 1.
	HeadlineAxis ChartAxis
	// HeadlineLines are to be read with the headlines: how they were made.
	HeadlineLines []string
	// Failures, Doubts and Notes must be read with any figure.
	Failures []string
	Doubts   []Doubt
	Notes    []string
	// Evidence says what was compared before anything was timed; Equal that
	// nothing was found that makes figures meaningless.
	Evidence []string
	Equal    bool
	// Split divides the headlines' speed-up; nil if none is stored.
	Split *Section
	// Tables are the figures, and what there is of ratios and traced passes.
	Tables []Section
	// Charts are the plots, without the pictures of timelines, which a renderer
	// draws from these; Absent says why others are not drawn.
	Charts []Chart
	Absent []string
	// Details are the environment, the check, and how the runs were made.
	Details []Section
}

// Headline is a cell's speed-up of the best captured configuration over eager.
type Headline struct {
	Cell       []string // a word for each of Contents.Columns
	Base, Best string
	// Value is the speed-up, with Low and High its interval; HasInterval is
	// false with one process. Withheld tells why there is no value.
	Value, Low, High float64
	HasInterval      bool
	Withheld         bool
	// Text and Range are Value and its interval as shown.
	Text, Range string
	Processes   string
	Remarks     string
}

// Collect makes the contents of a report on records. Without any, the error is
// [ErrNoRecords].
func Collect(records []Named) (Contents, error) {
	s := gather(records)
	if len(s.list) == 0 {
		return Contents{}, ErrNoRecords
	}
	c := Contents{
		Failures: s.failures(), Doubts: s.doubts(), Notes: append(s.notes(), s.lines()...),
		Evidence: s.evidence(), Equal: true,
	}
	for _, src := range s.list {
		c.Records = append(c.Records, src.summary())
	}
	for cell := range s.cells {
		if !cell.Verify.Equal && !(failed(cell) && len(cell.Configurations) == 0) {
			c.Equal = false
		}
	}
	c.Columns, c.Headlines = s.headlineRows()
	if len(c.Headlines) > 0 {
		c.HeadlineLines = append([]string{upper(meanNote) + " in the figures."}, intervalKinds(s, headlineRatios)...)
	}
	c.HeadlineAxis = headlineAxis(c.Headlines)
	c.Verdict = s.verdict(c.Headlines, c.Columns)
	c.Tables = []Section{{"Figures", s.figures(), s.intervalLine()}}
	if t := s.splits(); len(t.Grid.Rows) > 0 {
		c.Split = &t
	}
	for _, t := range []Section{s.ratios(), s.peerTable(), s.idleShares(), s.times(), s.lateness(), s.launchCosts()} {
		if len(t.Grid.Rows) > 0 {
			c.Tables = append(c.Tables, t)
		}
	}
	pictures, absent := s.charted()
	for _, p := range pictures {
		c.Charts = append(c.Charts, p.Chart())
	}
	c.Absent, c.Details = absent, s.details()
	return c, nil
}

// headlineRows are the headlines table as data.
func (s sources) headlineRows() (columns []string, out []Headline) {
	g, cols := s.comparison()
	for cell, src := range s.headlineCells {
		h := Headline{Cell: keys(src, cell, cols), Remarks: headlineRemarks(&cell.Headline), Withheld: true, Text: "-", Range: "-", Processes: "-"}
		if r := cell.Headline.Ratio; !cell.Verify.Equal {
			h.Remarks = withheldRemark + "the modes were not found equal"
		} else if r != nil {
			h.Base, h.Best, h.Processes = name(r.Base), name(r.Other), logs(r)
			if f, ok := ratioFigure(r); ok {
				h.Withheld, h.Value, h.Text = false, f.value, factor(f.value)
				if i := f.interval; i != nil && drawable(i.Low) && drawable(i.High) {
					h.HasInterval, h.Low, h.High = true, i.Low, i.High
					h.Range = factor(i.Low) + ".." + factor(i.High)
				}
			}
		}
		out = append(out, h)
	}
	return g.Header, out
}

// headlineAxis holds what is to be drawn; ends of intervals count unless they
// would flatten the rest, as in the plots.
func headlineAxis(hs []Headline) ChartAxis {
	values := []float64{1}
	for _, h := range hs {
		if h.Withheld {
			continue
		}
		values = append(values, h.Value)
		for _, end := range []float64{h.Low, h.High} {
			if h.HasInterval && end > h.Value/3 && end < h.Value*3 {
				values = append(values, end)
			}
		}
	}
	return chartAxis(ratioAxis(values))
}

// verdict says what the headlines come to. It draws no conclusion that an
// interval does not carry: what holds 1 shows no difference, and what has no
// interval shows nothing about other runs.
func (s sources) verdict(hs []Headline, columns []string) []string {
	cells, cpu, broken := 0, 0, 0
	for c := range s.cells {
		if failed(c) {
			broken++
		}
		if cells++; onCPU(c) {
			cpu++
		}
	}
	var tail []string
	if broken > 0 {
		tail = []string{fmt.Sprintf("%s failed.", upper(cellsWord(broken)))}
	}
	switch {
	case cells == 0:
		return []string{"Nothing was measured: no cells."}
	case broken == cells && len(hs) == 0:
		return []string{"Nothing holds: every cell failed."}
	case cpu == cells:
		return append([]string{"No headline: these figures are of a CPU, and show the method, not the gain."}, tail...)
	case len(hs) == 0:
		return append([]string{"No headline: no cell has one."}, tail...)
	}
	var faster, slower, unclear, bare, withheld []Headline
	for _, h := range hs {
		switch {
		case h.Withheld:
			withheld = append(withheld, h)
		case !h.HasInterval:
			bare = append(bare, h)
		case h.Low > 1:
			faster = append(faster, h)
		case h.High < 1:
			slower = append(slower, h)
		default:
			unclear = append(unclear, h)
		}
	}
	judged := len(faster) + len(slower) + len(unclear)
	place := s.placer(hs, columns)
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	most, least := extremes(faster)
	_, worst := extremes(slower)
	switch {
	case judged == 0:
	case judged == 1 && len(faster) == 1:
		say("A captured step is %s times as fast as an eager one%s.", most.Text, place(most, ", "))
		say("Interval: %s.", most.Range)
	case judged == 1 && len(slower) == 1:
		say("A captured step is slower than an eager one: %s times as fast%s.", worst.Text, place(worst, ", "))
		say("Interval: %s.", worst.Range)
	case judged == 1:
		say("No difference between a captured step and an eager one is shown%s.", place(unclear[0], ", "))
		say("Speed-up %s, interval %s.", unclear[0].Text, unclear[0].Range)
	case len(faster) == 0:
		say("Captured steps are not shown to be faster than eager ones in any of %d cells.", judged)
	case len(faster) == judged:
		say("Captured steps are up to %s times as fast as eager ones, and faster in all %d cells.", most.Text, judged)
	default:
		say("Captured steps are up to %s times as fast as eager ones, and faster in %d of %d cells.", most.Text, len(faster), judged)
	}
	if judged > 1 {
		if len(faster) > 0 {
			say("Most: %s (%s)%s.", most.Text, most.Range, place(most, ", "))
		}
		if len(faster) > 1 {
			say("Least of the faster ones: %s (%s)%s.", least.Text, least.Range, place(least, ", "))
		}
		if len(unclear) > 0 {
			say("No difference is shown in %s: the interval holds 1.", cellsWord(len(unclear)))
		}
		if len(slower) > 0 {
			say("Captured is slower in %s: %s times as fast (%s)%s.", cellsWord(len(slower)), worst.Text, worst.Range, place(worst, ", "))
		}
	}
	if n := len(bare); n > 0 {
		most, _ := extremes(bare)
		say("A captured step was %s%s times as fast as an eager one in one process%s.", map[bool]string{true: "up to "}[n > 1], most.Text, place(most, ", "))
		say("%s without an interval, as there was one process: other runs may differ by any amount.", upper(cellsWord(n)))
	}
	if n := len(withheld); n > 0 {
		why, same := withheld[0].Remarks, true
		for _, h := range withheld {
			same = same && h.Remarks == why
		}
		switch {
		case same && n == len(hs):
			// Remarks go on with what else is missing.
			why, _, _ = strings.Cut(strings.TrimPrefix(why, withheldRemark), "; no split")
			say("No headline: %s.", why)
			if n > 1 {
				say("Withheld in %s.", cellsWord(n))
			}
		default:
			say("Withheld in %s: see the remarks.", cellsWord(n))
		}
	}
	return append(out, tail...)
}

func cellsWord(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// extremes are the headlines with the largest and the smallest speed-up.
func extremes(hs []Headline) (most, least Headline) {
	for i, h := range hs {
		if i == 0 || h.Value > most.Value {
			most = h
		}
		if i == 0 || h.Value < least.Value {
			least = h
		}
	}
	return most, least
}

// placer names a headline's cell by what tells it from others.
func (s sources) placer(hs []Headline, columns []string) func(h Headline, before string) string {
	differs := make([]bool, len(columns))
	for i := range columns {
		for _, h := range hs {
			differs[i] = differs[i] || h.Cell[i] != hs[0].Cell[i]
		}
	}
	// A file's name is long, and needed only where cells are else alike.
	if i := slices.Index(columns, "file"); i >= 0 {
		seen := map[string]bool{}
		for _, h := range hs {
			rest := slices.Delete(slices.Clone(h.Cell), i, i+1)
			seen[strings.Join(rest, "\x00")] = true
		}
		differs[i] = len(seen) < len(hs)
	}
	return func(h Headline, before string) string {
		var words []string
		for i, c := range columns {
			if differs[i] {
				words = append(words, c+" "+h.Cell[i])
			}
		}
		if h.Best != "" {
			words = append(words, "with "+h.Best)
		}
		if len(words) == 0 {
			return ""
		}
		return before + strings.Join(words, ", ")
	}
}

// withheldRemark begins the remark of a headline that is not told.
const withheldRemark = "withheld: "

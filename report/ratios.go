package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// name is a configuration's short name in tables of comparisons: the parts
// few runs vary are left out at their default.
func name(k results.ConfigurationKey) string {
	s := plain(k.String())
	def := results.DefaultConfigurationKey()
	if k.Ranks != def.Ranks && k.Ranks != "" {
		s += "/" + plain(k.Ranks)
	}
	if k.DispatchNs != 0 {
		s += "/+" + Duration(float64(k.DispatchNs))
	}
	return s
}

// factor shows a ratio; three digits, and never so few that 1.004 reads 1.
func factor(v float64) string {
	if !finite(v) {
		return "-"
	}
	if v < 9.995 {
		return fmt.Sprintf("%.3f", v)
	}
	return digits(v)
}

func bounds(f figure) []string {
	if f.interval == nil {
		return []string{"-", "-"}
	}
	return []string{factor(f.interval.Low), factor(f.interval.High)}
}

// ranged is a ratio with its interval in one word.
func ranged(r results.Ratio) string {
	i := usable(r.Interval)
	if i == nil {
		return factor(r.Value)
	}
	return fmt.Sprintf("%s (%s..%s)", factor(r.Value), factor(i.Low), factor(i.High))
}

// comparison begins a table of comparisons within cells.
func (s sources) comparison(more ...string) (Grid, []column) {
	cols := s.cellColumns()
	g := Grid{Header: slices.Clone(s.columns)}
	for _, c := range cols {
		g.Header = append(g.Header, c.name)
	}
	g.Header = append(g.Header, more...)
	return g, cols
}

func keys(src *source, cell *results.Cell, cols []column) []string {
	line := slices.Clone(src.shown)
	for _, c := range cols {
		line = append(line, c.text(cell.Key))
	}
	return line
}

// headlines is a line a cell: the speed-up with its interval, or why there is
// none. A cell of a CPU has no line, whatever its record says.
func (s sources) headlines() Section {
	g, cols := s.comparison("base", "best captured", "speed-up", "low", "high", "processes", "remarks")
	g.Left, g.LeftEnd = len(g.Header)-5, 1
	for cell, src := range s.headlineCells {
		line := keys(src, cell, cols)
		if r := cell.Headline.Ratio; r == nil {
			line = append(line, "-", "-", "-", "-", "-", "-")
		} else {
			f, _ := ratioFigure(r)
			line = append(line, name(r.Base), name(r.Other), factor(r.Value))
			line = append(line, bounds(f)...)
			line = append(line, logs(r))
		}
		g.Rows = append(g.Rows, append(line, headlineRemarks(&cell.Headline)))
	}
	return Section{Title: "Headline: step time of eager over the best captured configuration", Grid: g, Lines: ratioLines(s, headlineRatios)}
}

func headlineRatios(c *results.Cell) []*results.Ratio {
	if c.Headline.Ratio == nil || onCPU(c) {
		return nil
	}
	return []*results.Ratio{c.Headline.Ratio}
}

// headlineCells yields the cells that have a headline, or a reason for none. A
// CPU's is neither, whatever its record says.
func (s sources) headlineCells(yield func(*results.Cell, *source) bool) {
	for cell, src := range s.cells {
		h := &cell.Headline
		if onCPU(cell) || h.Ratio == nil && h.Withheld == "" {
			continue
		}
		if !yield(cell, src) {
			return
		}
	}
}

// headlineRemarks is what must be read with a headline.
func headlineRemarks(h *results.Headline) string {
	var remarks []string
	if r := h.Ratio; r == nil {
		remarks = append(remarks, withheldRemark+plain(h.Withheld))
	} else if f, _ := ratioFigure(r); f.interval != nil && f.interval.Low <= 1 && f.interval.High >= 1 {
		remarks = append(remarks, "the interval holds 1: no difference shown")
	}
	if h.Split == nil && h.SplitWithheld != "" {
		remarks = append(remarks, "no split: "+plain(h.SplitWithheld))
	}
	return strings.Join(remarks, "; ")
}

// splits is a line a cell: the speed-up as a product of fewer joins and fewer
// launches. The product is the total, since each is a mean over both orders.
func (s sources) splits() Section {
	g, cols := s.comparison("base", "other", "total", "= fewer joins", "x fewer launches", "interaction")
	g.Left = len(g.Header) - 4
	for cell, src := range s.cells {
		sp := cell.Headline.Split
		if onCPU(cell) || sp == nil {
			continue
		}
		g.Rows = append(g.Rows, append(keys(src, cell, cols), name(sp.Total.Base), name(sp.Total.Other),
			ranged(sp.Total), ranged(sp.Joins), ranged(sp.Launches), ranged(sp.Interaction)))
	}
	return Section{Title: "Split: what of the speed-up comes from fewer joins and what from fewer launches", Grid: g}
}

func logs(r *results.Ratio) string {
	if len(r.Logs) == 0 {
		return "-"
	}
	return fmt.Sprint(len(r.Logs))
}

// shownRatios are a cell's ratios of step time; the long forms have the others.
func shownRatios(c *results.Cell) []*results.Ratio {
	var out []*results.Ratio
	for i := range c.Ratios {
		if c.Ratios[i].Metric == results.StepTimeNs {
			out = append(out, &c.Ratios[i])
		}
	}
	return out
}

// ratios is a line a pair of configurations. On a CPU a ratio is no speed-up
// that anybody could have.
func (s sources) ratios() Section {
	booted := false
	value, title := "speed-up", "Ratios of step time, base over other: above 1, other is faster"
	for c := range s.cells {
		for _, r := range shownRatios(c) {
			booted = booted || usable(r.Bootstrap) != nil
			if onCPU(c) {
				value, title = "ratio", "Ratios of step time, base over other: above 1, other took less; on a CPU they show the method, not the gain"
			}
		}
	}
	header := []string{"base", "other", value, "low", "high", "processes"}
	if booted {
		header = append(header, "bootstrap low", "high")
	}
	g, cols := s.comparison(header...)
	g.Left = len(g.Header) - len(header) + 2
	for cell, src := range s.cells {
		for _, r := range shownRatios(cell) {
			f, _ := ratioFigure(r)
			line := append(keys(src, cell, cols), name(r.Base), name(r.Other), factor(r.Value))
			line = append(line, bounds(f)...)
			line = append(line, logs(r))
			if booted {
				line = append(line, bounds(figure{interval: usable(r.Bootstrap)})...)
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return Section{Title: title, Grid: g,
		Lines: ratioLines(s, shownRatios)}
}

// intervalKinds says how the intervals of some ratios were made.
func intervalKinds(s sources, of func(*results.Cell) []*results.Ratio) []string {
	var kinds []string
	for c := range s.cells {
		for _, r := range of(c) {
			if i := usable(r.Interval); i != nil {
				if k := describe(i); !slices.Contains(kinds, k) {
					kinds = append(kinds, k)
				}
			}
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	line := "low..high: "
	for i, k := range kinds {
		if i > 0 {
			line += "; "
		}
		line += k
	}
	return []string{line + "."}
}

// ratioLines are what is to be read with ratios: how they were made, and how
// their intervals were.
func ratioLines(s sources, of func(*results.Cell) []*results.Ratio) []string {
	var lines []string
	for c := range s.cells {
		if len(of(c)) > 0 {
			lines = []string{upper(meanNote) + " above."}
			break
		}
	}
	return append(lines, intervalKinds(s, of)...)
}

// upper begins a sentence.
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

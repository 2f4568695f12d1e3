package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/timeline/analysis"
)

// maxDifferences is how many differences of a group a table lists.
const maxDifferences = 15

// DiffText writes what differs between two devices.
func DiffText(w io.Writer, base, head *analysis.Device, list []analysis.Difference) error {
	for _, s := range diffSections(base, head, list) {
		if err := s.text(w); err != nil {
			return err
		}
	}
	return nil
}

// DiffMarkdown is DiffText as a page.
func DiffMarkdown(w io.Writer, base, head *analysis.Device, list []analysis.Difference) error {
	var b strings.Builder
	b.WriteString("# trbench analyze --diff\n")
	for _, s := range diffSections(base, head, list) {
		s.markdown(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func diffSections(base, head *analysis.Device, list []analysis.Difference) []analysisSection {
	first := analysisSection{lines: []string{
		fmt.Sprintf("Base: %s, %s, %s", filepath.Base(base.File), deviceTitle(base), ofWhat(base)),
		fmt.Sprintf("Head: %s, %s, %s", filepath.Base(head.File), deviceTitle(head), ofWhat(head)),
	}}
	judged := len(base.Steps) >= analysis.MinSteps && len(head.Steps) >= analysis.MinSteps
	if judged {
		first.lines = append(first.lines, "* marks what no step of one side shares with the other: more than steps of one recording differ")
	} else {
		first.lines = append(first.lines, fmt.Sprintf("Nothing is marked: how much steps vary takes %d steps on both sides", analysis.MinSteps))
	}
	out := []analysisSection{first}
	titles := map[string]string{"step": "Step, medians", "cause": "Causes of idle time", "launch": "Launching and blocking calls by name", "kernel": "Kernels, copies and fills by name"}
	for _, group := range []string{"step", "cause", "launch", "kernel"} {
		grid := Grid{Header: []string{"of", "base", "head", "difference", "base range", "head range", "beyond", "what"}, Left: 1, LeftEnd: 1}
		left := 0
		for _, d := range list {
			if d.Group != group || d.Base.Max == 0 && d.Head.Max == 0 {
				continue
			}
			if d.Base == d.Head && group != "step" {
				continue
			}
			if len(grid.Rows) == maxDifferences && !d.Marked {
				left++
				continue
			}
			show := func(v int64) string {
				if d.Unit == "ns" {
					return ns(v)
				}
				return strconv.FormatInt(v, 10)
			}
			kind, mark := "time", ""
			if d.Unit != "ns" {
				kind = "count"
			}
			if d.Marked {
				mark = "*"
			}
			grid.Rows = append(grid.Rows, []string{kind, show(d.Base.Median), show(d.Head.Median), show(d.Head.Median - d.Base.Median),
				show(d.Base.Min) + ".." + show(d.Base.Max), show(d.Head.Min) + ".." + show(d.Head.Max), mark, shortName(d.Name)})
		}
		s := analysisSection{title: titles[group], grid: grid}
		if len(grid.Rows) == 0 {
			s.after = append(s.after, "no difference")
		}
		if left > 0 {
			s.after = append(s.after, fmt.Sprintf("and %d smaller differences", left))
		}
		out = append(out, s)
	}
	return out
}

func ofWhat(d *analysis.Device) string {
	if n := len(d.Steps); n > 0 {
		return fmt.Sprintf("a step of %d", n)
	}
	return d.Over
}

// DiffCSV writes every quantity of both sides, with all digits.
func DiffCSV(w io.Writer, list []analysis.Difference) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"group", "name", "unit", "base_median", "base_min", "base_max", "base_steps", "head_median", "head_min", "head_max", "head_steps", "marked"}); err != nil {
		return err
	}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	for _, d := range list {
		if err := out.Write([]string{d.Group, d.Name, d.Unit, n(d.Base.Median), n(d.Base.Min), n(d.Base.Max), strconv.Itoa(d.Base.Steps),
			n(d.Head.Median), n(d.Head.Min), n(d.Head.Max), strconv.Itoa(d.Head.Steps), strconv.FormatBool(d.Marked)}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// DiffJSON writes an object a quantity, each on a line of its own.
func DiffJSON(w io.Writer, list []analysis.Difference) error {
	for _, d := range list {
		if _, err := w.Write(append(analysis.JSON([]analysis.Field{
			{Name: "group", Value: d.Group}, {Name: "name", Value: d.Name}, {Name: "unit", Value: d.Unit},
			{Name: "base_median", Value: d.Base.Median}, {Name: "base_min", Value: d.Base.Min}, {Name: "base_max", Value: d.Base.Max}, {Name: "base_steps", Value: d.Base.Steps},
			{Name: "head_median", Value: d.Head.Median}, {Name: "head_min", Value: d.Head.Min}, {Name: "head_max", Value: d.Head.Max}, {Name: "head_steps", Value: d.Head.Steps},
			{Name: "marked", Value: d.Marked},
		}), '\n')); err != nil {
			return err
		}
	}
	return nil
}

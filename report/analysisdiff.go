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

// DevicePair is two devices to compare.
type DevicePair struct{ Base, Head *analysis.Device }

// DiffText writes what differs between the devices of each pair.
func DiffText(w io.Writer, pairs []DevicePair) error {
	for i, p := range pairs {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		for _, s := range diffSections(p.Base, p.Head, analysis.Diff(p.Base, p.Head)) {
			if err := s.text(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// DiffMarkdown is DiffText as a page.
func DiffMarkdown(w io.Writer, pairs []DevicePair) error {
	var b strings.Builder
	b.WriteString("# trbench analyze --diff\n")
	for _, p := range pairs {
		for _, s := range diffSections(p.Base, p.Head, analysis.Diff(p.Base, p.Head)) {
			s.markdown(&b)
		}
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
	first.lines = append(first.lines, incomparable(base, head, list)...)
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

// incomparable says why a comparison tells little.
func incomparable(base, head *analysis.Device, list []analysis.Difference) []string {
	var out []string
	if (len(base.Steps) > 0) != (len(head.Steps) > 0) {
		out = append(out, "One side is a step, the other all that was chosen or recorded: their amounts of work differ")
	}
	kernels, common := 0, 0
	for _, d := range list {
		if d.Group == "kernel" && d.Unit == "" {
			kernels++
			if d.Base.Max > 0 && d.Head.Max > 0 {
				common++
			}
		}
	}
	if kernels > 0 && common == 0 {
		out = append(out, "The two have no kernel, copy or fill of the same name: they are no two runs of one program")
	}
	return out
}

func ofWhat(d *analysis.Device) string {
	if n := len(d.Steps); n > 0 {
		return fmt.Sprintf("a step of %d", n)
	}
	return d.Over
}

// diffFields are one difference, with whose it is.
func (p DevicePair) diffFields(d analysis.Difference) []analysis.Field {
	return []analysis.Field{
		{Name: "base_file", Value: p.Base.File}, {Name: "base_device", Value: p.Base.ID}, {Name: "head_file", Value: p.Head.File}, {Name: "head_device", Value: p.Head.ID},
		{Name: "group", Value: d.Group}, {Name: "name", Value: d.Name}, {Name: "unit", Value: d.Unit},
		{Name: "base_median", Value: d.Base.Median}, {Name: "base_min", Value: d.Base.Min}, {Name: "base_max", Value: d.Base.Max}, {Name: "base_steps", Value: d.Base.Steps},
		{Name: "head_median", Value: d.Head.Median}, {Name: "head_min", Value: d.Head.Min}, {Name: "head_max", Value: d.Head.Max}, {Name: "head_steps", Value: d.Head.Steps},
		{Name: "marked", Value: d.Marked},
	}
}

// DiffCSV writes every quantity of both sides, with all digits.
func DiffCSV(w io.Writer, pairs []DevicePair) error {
	out := csv.NewWriter(w)
	for i, p := range pairs {
		for j, d := range analysis.Diff(p.Base, p.Head) {
			var header, row []string
			for _, f := range p.diffFields(d) {
				header, row = append(header, f.Name), append(row, f.Text())
			}
			if i == 0 && j == 0 {
				if err := out.Write(header); err != nil {
					return err
				}
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// DiffJSON writes an object a quantity, each on a line of its own.
func DiffJSON(w io.Writer, pairs []DevicePair) error {
	for _, p := range pairs {
		for _, d := range analysis.Diff(p.Base, p.Head) {
			if _, err := w.Write(append(analysis.JSON(p.diffFields(d)), '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

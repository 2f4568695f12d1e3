package page

import (
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// table is a grid as the template draws it.
type table struct {
	// Caption is read to those who do not see the heading above.
	Caption string
	Head    []head
	Rows    [][]cell
}

type head struct {
	Text   string
	Figure bool
}

// cell is a word or a figure, whose unit stands in a column of its own so that
// figures of one unit line up.
type cell struct {
	Text, Unit string
	Figure     bool
	// Key is what the column sorts by, in base units; empty sorts last, or as
	// text where no cell of the column has a key.
	Key string
	// Tone is "off" for a cell that says that there is nothing, and "long" for
	// one that may be broken anywhere.
	Tone string
	// Parts is Text where it may be broken first; nil for a short one.
	Parts []string
	// Link leads to an element of the page; empty for none.
	Link string
}

// longText is from how many bytes on text may be broken anywhere.
const longText = 40

// toneOf is how a word of a verdict or a state is shown: those that a reader looks
// for stand out, and what is nothing does not.
func toneOf(word string) string {
	switch word {
	case results.Slower:
		return "word-bad"
	case results.Ambiguous, results.Open, results.Expired, results.Provisional:
		return "word-doubt"
	case results.Faster:
		return "word-good"
	case "-":
		return "off"
	}
	return ""
}

// parts is a name where it may be broken first.
func parts(name string) []string { return strings.SplitAfter(name, "/") }

// figureCell is a figure of the kind that tables have.
func figureCell(text string) cell {
	c := cell{Figure: true}
	if v, ok := report.Quantity(text); ok {
		c.Key = strconv.FormatFloat(v, 'g', -1, 64)
	}
	if c.Text, c.Unit = report.Unit(text); text == "-" {
		c.Tone = "off"
	}
	return c
}

func tableOf(caption string, g report.Grid) table {
	t := table{Caption: caption}
	figure := func(i int) bool { return i >= g.Left && i < len(g.Header)-g.LeftEnd }
	for i, h := range g.Header {
		t.Head = append(t.Head, head{h, figure(i)})
	}
	for _, row := range g.Rows {
		var line []cell
		for i, text := range row {
			c := cell{Text: text}
			if figure(i) {
				c = figureCell(text)
			}
			if !c.Figure && len(text) > longText {
				c.Tone, c.Parts = "long", parts(text)
			}
			if text == "-" || text == "unknown" {
				c.Tone = "off"
			}
			line = append(line, c)
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

package page

import (
	"fmt"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// Comparison is what became of a comparison of records: the page's first words,
// before the headlines of its own records. [Judged] makes one.
type Comparison struct {
	// Status colours it: [Better], [Worse], [Unclear] or [Same].
	Status string
	// Verdict is sentences, the first one the answer.
	Verdict []string
	// Remarks are what need not be read first.
	Remarks []string
	Tables  []report.Section
	// Explained has every number behind rows; where a table names one of them,
	// it leads there.
	Explained []report.Explanation
	// Notes say what is left out.
	Notes []string
}

// Statuses of a comparison.
const (
	Better  = "better"
	Worse   = "worse"
	Unclear = "unclear"
	Same    = "same"
)

// maxExplained bounds how many rows have all their numbers on the page, the
// worst first: a row of 5 runs of 8 processes takes about 2 kB.
const maxExplained = 300

// Judged is a comparison as the top of a page. Whoever has more to say, such as
// which night it is, adds to Verdict.
func Judged(c *results.Comparison) *Comparison {
	out := &Comparison{Verdict: []string{report.VerdictHeadline(c)}, Tables: report.VerdictSections(c), Explained: report.Explanations(c)}
	out.Verdict = append(out.Verdict, report.VerdictSentences(c)...)
	switch c.Verdict {
	case results.Slower:
		if out.Status = Unclear; c.Confirmed {
			out.Status = Worse
		}
	case results.Faster:
		out.Status = Better
	case results.Same:
		out.Status = Same
	default:
		out.Status = Unclear
	}
	if n := len(out.Explained) - maxExplained; n > 0 {
		out.Explained = out.Explained[:maxExplained]
		out.Notes = append(out.Notes, fmt.Sprintf("The numbers behind %d more rows are not on this page; trbench compare --explain and --format=json have them.", n))
	}
	return out
}

// explanationID is the place of a row's numbers.
func explanationID(i int) string { return fmt.Sprintf("row-%d", i) }

// Row is an explained row with its place on the page.
type Row struct {
	ID string
	report.Explanation
}

// Rows are the explained rows.
func (c *Comparison) Rows() []Row {
	var out []Row
	for i, e := range c.Explained {
		out = append(out, Row{explanationID(i), e})
	}
	return out
}

// linkedTable is a table whose cells lead to the rows that they name.
func linkedTable(c *Comparison, s report.Section) table {
	at := map[string]string{}
	for i, e := range c.Explained {
		at[e.Row] = "#" + explanationID(i)
	}
	t := tableOf(s.Title, s.Grid)
	for _, row := range t.Rows {
		for i := range row {
			if !row[i].Figure {
				row[i].Link = at[row[i].Text]
			}
			if s.Title == report.SectionRows && i == 0 {
				row[i].Tone = toneOf(row[i].Text)
			}
		}
	}
	return t
}

package page_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
)

// compared is a comparison with something in every part of it, its figures made
// up: rows of four verdicts, one of them confirmed.
func compared() *results.Comparison {
	number := func(v float64) *float64 { return &v }
	cell := results.CellKey{Workload: "resnet50", Batch: 16, GPUs: 1, Precision: "amp", Optimizer: "sgd"}
	row := func(mode, metric, verdict, reason string, base, head float64) results.RowVerdict {
		key := results.RowKey{Cell: cell, Configuration: results.ConfigurationKey{Mode: mode, Sync: "event", Control: "device"}, Metric: metric}
		v := results.RowVerdict{
			Row: key, Unit: "ns", Direction: results.Lower, Verdict: verdict, Reason: reason, Why: reason + ", in a sentence",
			Base:  results.RowSide{Runs: [][]float64{{base, base + 1}, {base}}, Median: &base, Processes: 3},
			Head:  results.RowSide{Runs: [][]float64{{head, head - 1}}, Median: &head, Processes: 2},
			Ratio: number(head / base), Interval: &results.Interval{Low: head/base - 0.01, High: head/base + 0.01, Level: 0.95, Coverage: 0.96, Method: "mann-whitney"},
			Threshold: 0.01, U: number(16), P: number(0.002), AdjustedP: number(0.008), FloorP: number(0.0001), Alpha: 0.05, Family: 4, NeedBase: 8, NeedHead: 8,
		}
		return v
	}
	slower := row("eager", results.StepTimeNs, results.Slower, results.Confirmed, 1e6, 1.1e6)
	again := row("eager", results.StepTimeNs, results.Slower, results.Significant, 1e6, 1.2e6)
	baseAgain := row("eager", results.StepTimeNs, results.Same, results.NoEvidence, 1e6, 1.0003e6)
	slower.First, slower.Confirmation, slower.BaseAgain = results.Slower, &again, &baseAgain
	unclear := row("graph", results.StepTimeNs, results.Ambiguous, results.NotSignificant, 2e6, 2.04e6)
	unclear.Next = "measure with 9 processes a side"
	odd := row("eager", results.LatencyNs, results.Slower, results.Confirmed, 1e3, 25e3)
	revision := []results.FieldDifference{{Name: "program.revision", Role: results.Subject, Base: []string{"aaa"}, Head: []string{"bbb"}}}
	return &results.Comparison{
		Verdict: results.Slower, Confirmed: true, Suspects: revision,
		Allowed: []results.FieldDifference{{Name: "host.cpus", Role: results.Bed, Base: []string{"2"}, Head: []string{""}, Why: "not asked"}},
		Records: []results.Compared{{Side: results.BaseSide, Name: "mon.json", Created: "2026-01-05T00:00:00Z", Revision: "aaa", Status: results.Complete},
			{Side: results.HeadSide, Name: "tue.json", Revision: "b", Status: "interrupted"}},
		Rows: []results.RowVerdict{row("step", results.StepTimeNs, results.Same, results.NoEvidence, 1e6, 1.0001e6), unclear, slower, odd,
			row("graph", results.SubmitTimeNs, results.Faster, results.Significant, 2e4, 1e4)},
		OnlyBase: []results.RowKey{{Cell: cell, Configuration: results.ConfigurationKey{Mode: "loop"}, Metric: results.StepTimeNs}},
		OnlyHead: []results.RowKey{{Cell: cell, Configuration: results.ConfigurationKey{Mode: "new"}, Metric: results.StepTimeNs}},
		Exact: []results.ExactDifference{{Cell: cell, What: "plans", Base: `{"engine":1}`, Head: `{"engine":2,"knobs":"` + strings.Repeat("long, ", 60) + `"}`},
			{Cell: cell, Configuration: &results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device"}, What: "launches.host", Base: "812", Head: "815"}},
		Partial:  []string{"head lacks 1 row that base has"},
		Warnings: []results.CarriedWarning{{Side: results.HeadSide, Record: "tue.json", Warning: results.Warning{Code: "load", Text: "the machine was busy"}}},
	}
}

// cellsOf are a table's rows as text.
func cellsOf(table *html.Node) (out [][]string) {
	for _, tr := range elements(table, "tr") {
		var row []string
		for _, e := range elements(tr, "") {
			if e.Data == "td" || e.Data == "th" {
				row = append(row, text(e))
			}
		}
		out = append(out, row)
	}
	return out
}

// below is the table below a heading.
func below(t *testing.T, in *html.Node, heading string) *html.Node {
	t.Helper()
	found := false
	for _, e := range elements(in, "") {
		switch {
		case e.Data == "h2":
			found = text(e) == heading
		case e.Data == "table" && found:
			return e
		}
	}
	t.Fatalf("there is no table %q", heading)
	return nil
}

// The answer comes first, then what may be the cause, the rows with all of their
// numbers, and the rest.
func TestComparison(t *testing.T) {
	records := samples(t)["gpu"]
	if byID(parse(t, write(t, page.Extra{}, records...)), "comparison") != nil {
		t.Error("a page without a comparison has a place for it")
	}
	judged := page.Judged(compared())
	judged.Verdict = append(judged.Verdict, "The cause is <unknown>.")
	b := write(t, page.Extra{Title: "night 7", Comparison: judged}, records...)
	doc := parse(t, b)
	e := byID(doc, "comparison")
	if e == nil || attribute(e, "class") != "comparison worse" {
		t.Fatal("the comparison is not shown")
	}
	if bytes.Index(b, []byte(`id="comparison"`)) > bytes.Index(b, []byte(`id="verdict"`)) {
		t.Error("the comparison does not come first")
	}
	if text(elements(doc, "title")[0]) != "night 7" {
		t.Error("the title is another")
	}
	var words, heads []string
	for _, x := range elements(e, "") {
		if x.Data == "h1" || attribute(x, "class") == "lead" {
			words = append(words, text(x))
		}
		if x.Data == "h2" {
			heads = append(heads, text(x))
		}
	}
	const eager = "resnet50"
	if want := []string{"Head is slower than base in 2 of 5 rows, confirmed.", "2 slower, 1 ambiguous, 1 faster, 1 same.",
		"Most: x25, " + compared().Rows[3].Row.String() + ".", "Something is missing: head lacks 1 row that base has.", "The cause is <unknown>."}; !slices.Equal(words, want) {
		t.Errorf("it says %q, want %q", words, want)
	}
	if want := []string{"Suspects: what differs between base and head", "Differs, and was allowed to", "Rows on both sides", "What to do next", "Exact differences: counted or chosen, not measured",
		"Rows on one side only", "Missing", "Doubts of the records compared", "Records compared"}; !slices.Equal(heads, want) {
		t.Errorf("it has %q, want %q", heads, want)
	}
	for heading, want := range map[string]string{
		heads[0]: "[[field base head] [program.revision aaa bbb]]",
		heads[1]: "[[field base head] [host.cpus 2 not known (not asked)]]",
		heads[6]: "[[missing] [head lacks 1 row that base has]]",
		heads[8]: "[[side record created revision status] [base mon.json 2026-01-05T00:00:00Z aaa complete] [head tue.json - b interrupted]]",
		heads[3]: "[[step] [measure with 9 processes a side]]",
	} {
		if got := fmt.Sprint(cellsOf(below(t, e, heading))); got != want {
			t.Errorf("%s: %s, want %s", heading, got, want)
		}
	}
	if got := cellsOf(below(t, e, heads[4])); len(got) != 3 || !slices.Equal(got[2], []string{"resnet50 batch 16 gpus 1", "eager/event/device", "launches.host", "812", "815"}) {
		t.Errorf("exact differences: %q", got)
	}
	if got := cellsOf(below(t, e, heads[5])); len(got) != 3 || got[1][1] != "base" || got[2][1] != "head" || !strings.Contains(got[1][0], eager) {
		t.Errorf("one side only: %q", got)
	}

	// Each row leads to its numbers; changes sort by size, factors among per cent.
	rows := elements(below(t, e, heads[2]), "tr")[1:]
	var verdicts, changes []string
	for _, tr := range rows {
		cells := elements(tr, "td")
		verdicts, changes = append(verdicts, text(cells[0])), append(changes, attribute(cells[4], "data-key"))
		link := elements(tr, "a")
		if len(link) != 1 {
			t.Fatalf("%s leads nowhere", text(tr))
		}
		place := byID(doc, strings.TrimPrefix(attribute(link[0], "href"), "#"))
		if place == nil || text(elements(place, "summary")[0]) != text(cells[0])+": "+text(cells[1]) {
			t.Errorf("%s leads to another row", text(tr))
		}
	}
	if want := []string{"slower", "slower", "ambiguous", "faster", "same"}; !slices.Equal(verdicts, want) {
		t.Errorf("verdicts are %q", verdicts)
	}
	if want := []string{"0.1", "24", "0.02", "-0.5", "0.0001"}; !slices.Equal(changes, want) {
		t.Errorf("changes sort by %q, want %q", changes, want)
	}
	numbers := byID(doc, "row-0")
	for _, want := range []string{"0.0080", "20.00%", "1000000 1000001", "1099999", "Measured again", "Base's second measurement, as head, against its first", "1000299", "16 of 6 pairs"} {
		if !strings.Contains(text(numbers), strings.TrimRight(want, "0")) {
			t.Errorf("the numbers behind a row lack %q: %s", want, text(numbers))
		}
	}
}

// What a comparison's verdict looks like.
func TestJudgedStatus(t *testing.T) {
	for verdict, want := range map[string][2]string{
		results.Slower:    {page.Unclear, "Head is slower than base in 2 of 5 rows, measured once."},
		results.Faster:    {page.Better, "Head is faster than base in 1 of 5 rows, and slower in none."},
		results.Same:      {page.Same, "No difference that matters between base and head in 5 rows."},
		results.Ambiguous: {page.Unclear, "It cannot be told whether head is slower: 1 of 5 rows are ambiguous."},
	} {
		c := compared()
		c.Verdict, c.Confirmed = verdict, false
		got := page.Judged(c)
		if got.Status != want[0] || got.Verdict[0] != want[1] {
			t.Errorf("%s: %s, %q", verdict, got.Status, got.Verdict[0])
		}
		if once := strings.Contains(strings.Join(got.Verdict, " "), "Not confirmed"); !once {
			t.Errorf("%s: a slower row measured once is not said to be", verdict)
		}
	}
}

// Of a metric where more is better, the worst row is the one that fell most.
func TestWorstRow(t *testing.T) {
	c := compared()
	for i, ratio := range map[int]float64{2: 0.5, 3: 0.9} {
		c.Rows[i].Direction, c.Rows[i].Ratio = results.Higher, &ratio
	}
	if got := page.Judged(c).Verdict[2]; got != "Most: -50.00%, "+c.Rows[2].Row.String()+"." {
		t.Errorf("the worst row: %s", got)
	}
}

// A comparison of any size leaves the page its size.
func TestComparisonIsBounded(t *testing.T) {
	c := compared()
	one := c.Rows[2]
	one.Base.Runs = nil
	for range 5 {
		var run []float64
		for i := range 8 {
			run = append(run, 1234567.891+float64(i))
		}
		one.Base.Runs = append(one.Base.Runs, run)
	}
	for i := range 1000 {
		one.Row.Cell.Batch = i
		c.Rows = append(c.Rows, one)
	}
	b := write(t, page.Extra{Comparison: page.Judged(c)}, samples(t)["gpu"]...)
	if len(b) > maxBytes {
		t.Errorf("the page has %d bytes", len(b))
	}
	if n := len(page.Judged(c).Explained); n != 300 {
		t.Errorf("%d rows are explained", n)
	}
	if !bytes.Contains(b, []byte("The numbers behind 705 more rows are not on this page")) {
		t.Error("nothing says that numbers are left out")
	}
}

// Names of a comparison are text, as all others; a row's name has them escaped
// already.
func TestComparisonIsText(t *testing.T) {
	c := compared()
	c.Rows[0].Row.Cell.Workload, c.Rows[0].Why = hostileText, hostileText
	c.Suspects[0].Name, c.Exact[0].Base, c.Partial[0], c.Records[0].Name = hostileText, hostileText, hostileText, hostileText
	doc := parse(t, write(t, page.Extra{Comparison: page.Judged(c)}, samples(t)["cpu"]...))
	e := byID(doc, "comparison")
	if len(elements(e, "script"))+len(elements(e, "img"))+len(elements(e, "b")) > 0 || strings.Count(text(e), "<script>alert(1)</script>") != 6 {
		t.Errorf("a name became markup, or is not shown: %d times", strings.Count(text(e), "<script>alert(1)</script>"))
	}
}

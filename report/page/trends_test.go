package page_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
)

// nights is rows over nights, each on its own level.
func nights(rows, nights int) []results.Series {
	rng := rand.New(rand.NewPCG(3, 3))
	var out []results.Series
	for r := range rows {
		key := results.RowKey{Cell: results.DefaultCellKey(), Configuration: results.DefaultConfigurationKey(), Metric: results.SubmitTimeNs}
		key.Cell.Workload, key.Cell.Batch = "resnet50", 1+r
		s := results.Series{Row: key, Unit: "ns", Direction: results.Lower}
		for i := range nights {
			s.Points = append(s.Points, results.Point{Run: fmt.Sprint(i), Sequence: i + 1, Value: 1e5 * float64(1+r) * (1 + .003*rng.NormFloat64()),
				Created: time.Date(2020, 1, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i)})
		}
		out = append(out, s)
	}
	return out
}

func changed(s results.Series, at int, ratio float64, state string) results.Change {
	before := s.Points[0].Value
	return results.Change{ChangePoint: results.ChangePoint{ID: fmt.Sprintf("id-%d-%d", s.Row.Cell.Batch, at), Row: s.Row, Unit: "ns", Index: at, Night: at + 1, Before: before, After: before * ratio,
		Slower: ratio > 1, Provisional: state == results.Provisional}, State: state}
}

// trendy is a page's trends with a change of every kind.
func trendy() *page.Trends {
	series := nights(7, 60)
	series[6].Points = series[6].Points[:50]
	ack := changed(series[3], 20, 1.05, results.Acknowledged)
	ack.Acknowledgement = &results.Acknowledgement{ID: ack.ID, Who: "<me>", Why: "driver", Until: time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)}
	changes := []results.Change{
		changed(series[0], 30, 1.004, results.Small), changed(series[1], 40, 1.06, results.Open), changed(series[2], 58, 1.03, results.Provisional),
		ack, changed(series[4], 10, .9, results.Expired), changed(series[6], 5, 1.2, results.Open),
	}
	tonight := &results.Comparison{}
	ratio := 1.021
	for i := range 6 {
		v := results.RowVerdict{Row: series[i].Row, Verdict: results.Same, Ratio: &ratio}
		if i == 5 {
			v.Verdict = results.Slower
		}
		tonight.Rows = append(tonight.Rows, v)
	}
	return page.NewTrends(series, changes, tonight)
}

// Rows that ask to be looked at come first; what is drawn is what stands in the
// table.
func TestTrends(t *testing.T) {
	got := trendy()
	var order, open []string
	for _, r := range got.Rows {
		word := fmt.Sprint(strings.Split(r.Row, "/")[1], " ", r.Verdict, " ", r.State)
		order = append(order, word)
		if r.Open {
			open = append(open, r.ID)
		}
	}
	want := []string{"batch=2 same open", "batch=6 slower -", "batch=3 same provisional", "batch=5 same expired", "batch=1 same small", "batch=4 same acknowledged", "batch=7 not measured since night 50 open"}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if !slices.Equal(open, []string{"trend-0", "trend-1", "trend-2", "trend-3"}) {
		t.Errorf("unfolded: %v", open)
	}
	if want := []string{"3 changes of level that nobody has acknowledged, 2 for the worse; 1 change in the last 3 nights, which the next ones may take back; 1 change acknowledged; 1 change of less than 1%, which do not matter."}; !slices.Equal(got.Lines, want) {
		t.Errorf("%q", got.Lines)
	}
	first := got.Rows[0]
	if first.Since != "+6.00% since night 41" || first.Change != "+2.10%" || !strings.HasSuffix(first.Latest, " us") || got.Rows[6].Latest != "-" {
		t.Errorf("%+v", first)
	}
	l := first.Chart.Lines
	if len(l.Marks) != 1 || l.Marks[0].X != 40.5 || l.Marks[0].Text != "id-2-40 +6.00%" || l.Marks[0].Quiet || len(l.Bands) != 1 || l.Bands[0].From != 57.5 || l.Bands[0].To != 60.5 {
		t.Errorf("%+v %+v", l.Marks, l.Bands)
	}
	if l.Series[1].Points[3].XText != "4, 2020-01-04" || len(l.Series[1].Points) != 60 || len(first.Chart.Table.Rows) != 30 || first.Chart.Table.Rows[0][0] != "60" {
		t.Errorf("%+v, %d rows", l.Series[1].Points[3], len(first.Chart.Table.Rows))
	}
	if m := got.Rows[5].Chart.Lines.Marks; len(m) != 1 || !m[0].Quiet || m[0].Text != "id-4-20 +5.00% acknowledged" {
		t.Errorf("%+v", m)
	}
	if n := strings.Count(first.Spark.Line, ","); n != 60 || first.Spark.Marks[0].Quiet {
		t.Errorf("%d points, %+v", n, first.Spark.Marks)
	}
	doc := parse(t, write(t, page.Extra{Trends: got}, samples(t)["cpu"]...))
	section := byID(doc, "trends")
	if section == nil || len(elements(section, "polyline")) != 14 || len(dataOf(t, doc).Trends) != 7 || byID(doc, "keys") == nil {
		t.Fatal("the page lacks trends")
	}
	links := 0
	for _, a := range elements(section, "a") {
		if byID(doc, strings.TrimPrefix(attribute(a, "href"), "#")) != nil {
			links++
		}
	}
	if links != 7 {
		t.Errorf("%d links lead to charts", links)
	}
}

// A level from before what is drawn goes on in it.
func TestTrendsAreCut(t *testing.T) {
	series := nights(40, 5000)
	var changes []results.Change
	for _, s := range series {
		changes = append(changes, changed(s, 100, 1.05, results.Open), changed(s, 4990, 1.02, results.Open))
	}
	got := page.NewTrends(series, changes, nil)
	l := got.Rows[0].Chart.Lines
	if len(l.Marks) != 1 || l.Marks[0].X != 4990.5 || l.X.Low != 4750.5 || l.X.High != 5000.5 {
		t.Errorf("%+v %+v", l.Marks, l.X)
	}
	level := l.Series[0].Points
	if len(level) != 4 || level[0].X != 4751 || level[3].X != 5000 || level[0].Y != level[1].Y || level[1].Y == level[2].Y {
		t.Errorf("%+v", level)
	}
	b := write(t, page.Extra{Trends: got}, samples(t)["gpu"]...)
	t.Logf("a page of 40 rows over 5000 nights has %d bytes", len(b))
	if len(b) > 2_500_000 {
		t.Errorf("%d bytes", len(b))
	}
	many := page.NewTrends(nights(700, 40), nil, nil)
	if len(many.Rows) != 500 || !strings.Contains(strings.Join(many.Notes, " "), "200 more rows are not on this page") {
		t.Errorf("%d rows, %q", len(many.Rows), many.Notes)
	}
	if b := write(t, page.Extra{Trends: many}, samples(t)["gpu"]...); len(b) > 2_500_000 || len(dataOf(t, parse(t, b)).Trends) != 120 {
		t.Errorf("%d bytes, %d charts", len(b), len(dataOf(t, parse(t, b)).Trends))
	}
	// Odd ones.
	series = nights(2, 1)
	series[0].Points = nil
	if odd := page.NewTrends(series, nil, nil); len(odd.Rows) != 1 || odd.Lines[0] != "No row changed its level: 1 row to night 1." {
		t.Errorf("%+v", odd)
	}
	if none := page.NewTrends(nil, nil, nil); len(none.Rows) != 0 || len(write(t, page.Extra{Trends: none}, samples(t)["cpu"]...)) == 0 {
		t.Errorf("%+v", none)
	}
}

package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// Trends are rows over the nights of a history, with their change points.
// [NewTrends] makes them.
type Trends struct {
	// Lines say what stands out, the first one the answer.
	Lines []string
	Rows  []Trend
	// Nights and Changes are tables that stand behind the rows; without rows
	// they are left out.
	Nights, Changes report.Grid
	// Notes say what is left out.
	Notes []string
}

// Trend is a row over nights.
type Trend struct {
	// ID is its place on the page, and its chart's name.
	ID  string
	Row string
	// Latest is the last night's figure, Change that against the baseline with
	// Verdict, Since the last change of its level; "-" for none.
	Latest, Verdict, Change, Since string
	// State is the last change point's, "-" for none.
	State string
	// Open says that its chart is unfolded from the start: there is something to
	// look at.
	Open bool
	// Drawn says that it has a chart of its own.
	Drawn bool
	Spark Spark
	Chart report.Chart

	rank int
}

// Spark is a row's nights in a table's cell: places in a drawing of
// [sparkWidth] x [sparkHeight].
type Spark struct {
	Line, Level   string // points of polylines
	Marks         []SparkMark
	Tail          string // where the provisional nights begin
	TailWidth     string
	LastX, LastY  string
	Text          string // for those who do not see it
	Width, Height int
}

// SparkMark is a change point's place.
type SparkMark struct {
	X     string
	Quiet bool
}

const (
	sparkWidth  = 180
	sparkHeight = 26
)

// How much of a history a page shows. All nights of all rows together have
// about 100 bytes each in the file.
const (
	maxTrendPoints = 10_000
	maxTrendNights = 365
	minTrendNights = 20
	maxTrendRows   = maxTrendPoints / minTrendNights
	// maxTrendCharts is how many rows have a chart of their own, and a table of
	// values, beside the small drawing.
	maxTrendCharts = 120
	// maxTrendListed is how many nights a chart's table of values has.
	maxTrendListed = 30
	// maxUnfolded is how many charts are unfolded from the start.
	maxUnfolded = 4
)

// NewTrends makes the trends of a history for a page: series are its rows,
// changes their change points, and tonight the last night's comparison, nil
// without one. The rows that ask to be looked at come first, then those that the
// last night measured, and then those that it did not. What has no room is said in
// notes; the history has all of it.
func NewTrends(series []results.Series, changes []results.Change, tonight *results.Comparison) *Trends {
	t := &Trends{}
	last := 0
	for _, s := range series {
		for _, q := range s.Points[max(0, len(s.Points)-1):] {
			last = max(last, q.Sequence)
		}
	}
	of := map[string][]results.Change{}
	for _, c := range changes {
		of[c.Row.String()] = append(of[c.Row.String()], c)
	}
	verdicts := map[string]*results.RowVerdict{}
	if tonight != nil {
		for i := range tonight.Rows {
			verdicts[tonight.Rows[i].Row.String()] = &tonight.Rows[i]
		}
	}
	type entry struct {
		s       results.Series
		changes []results.Change
		v       *results.RowVerdict
		rank    int
	}
	var list []entry
	for _, s := range series {
		if len(s.Points) == 0 {
			continue
		}
		e := entry{s: s, changes: of[s.Row.String()]}
		measured := s.Points[len(s.Points)-1].Sequence == last
		if measured {
			e.v = verdicts[s.Row.String()]
		}
		e.rank = rankOf(e.changes, e.v, measured)
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(a.rank, b.rank) })
	if n := len(list) - maxTrendRows; n > 0 {
		list = list[:maxTrendRows]
		t.Notes = append(t.Notes, fmt.Sprintf("%d more rows are not on this page; trbench history has all.", n))
	}
	nights := maxTrendNights
	if len(list) > 0 {
		nights = min(nights, max(minTrendNights, maxTrendPoints/len(list)))
	}
	longest := 0
	for i, e := range list {
		longest = max(longest, len(e.s.Points))
		s, cs := e.s, slices.Clone(e.changes)
		if cut := len(s.Points) - nights; cut > 0 {
			s.Points = s.Points[cut:]
			for j := range cs {
				cs[j].Index -= cut
			}
		}
		p, why := report.Trend(s, cs, report.About{Name: fmt.Sprintf("trend-%d", i)})
		if why != "" {
			t.Notes = append(t.Notes, report.Plain(why)+".")
			continue
		}
		one := Trend{ID: p.Name, Row: report.Plain(e.s.Row.String()), Chart: p.Chart(), Verdict: "-", Change: "-", Since: "-", State: "-", rank: e.rank}
		one.Latest = report.Figure(s.Points[len(s.Points)-1].Value, s.Unit)
		if n := s.Points[len(s.Points)-1].Sequence; n < last {
			one.Latest, one.Verdict = "-", fmt.Sprintf("not measured since night %d", n)
		}
		if e.v != nil {
			one.Verdict = e.v.Verdict
			if e.v.Ratio != nil {
				one.Change = report.ChangeOf(*e.v.Ratio)
			}
		}
		if n := len(e.changes); n > 0 {
			c := e.changes[n-1]
			one.Since, one.State = fmt.Sprintf("%s since night %d", report.ChangeOf(c.After/c.Before), c.Night), c.State
		}
		one.Chart.Subtitle = one.Chart.Subtitle[1:] // it stands beneath its row's name
		one.Spark = sparkOf(one.Chart)
		one.Drawn = len(t.Rows) < maxTrendCharts
		if n := len(one.Chart.Table.Rows) - maxTrendListed; n > 0 {
			one.Chart.Table.Rows = one.Chart.Table.Rows[:maxTrendListed]
			one.Chart.Notes = append(one.Chart.Notes, fmt.Sprintf("The table has the last %d nights; trbench history --row=NAME --csv has all.", maxTrendListed))
		}
		t.Rows = append(t.Rows, one)
	}
	for i := range t.Rows[:min(len(t.Rows), maxUnfolded)] {
		t.Rows[i].Open = t.Rows[i].rank < rankQuiet || i == 0
	}
	if n := len(t.Rows) - maxTrendCharts; n > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d rows have no chart of their own on this page; trbench history --row=NAME --plots=DIR draws any.", n))
	}
	if longest > nights {
		t.Notes = append(t.Notes, fmt.Sprintf("Drawn are the last %d nights of each row, of up to %d; change points are found in all of them.", nights, longest))
	}
	t.Lines = trendLines(changes, len(list), last)
	return t
}

// Ranks of rows, those to look at first.
const (
	rankSlower = iota // a change for the worse that nobody accepted, or slower tonight
	rankMaybe         // one that the next nights may take back, or ambiguous tonight
	rankBetter        // a change for the better
	rankQuiet
	rankGone // not measured by the last night
)

func rankOf(changes []results.Change, v *results.RowVerdict, measured bool) int {
	if !measured {
		return rankGone
	}
	rank := rankQuiet
	for _, c := range changes {
		switch {
		case c.Unheeded() && c.Slower:
			rank = min(rank, rankSlower)
		case c.Unheeded():
			rank = min(rank, rankBetter)
		case c.State == results.Provisional && c.Matters():
			rank = min(rank, rankMaybe)
		}
	}
	switch {
	case v == nil:
	case v.Verdict == results.Slower:
		rank = min(rank, rankSlower)
	case v.Verdict == results.Ambiguous:
		rank = min(rank, rankMaybe)
	}
	return rank
}

// trendLines say what the change points come to.
func trendLines(changes []results.Change, rows, last int) []string {
	have := map[string]int{}
	slower := 0
	for _, c := range changes {
		if have[c.State]++; c.Slower && c.Unheeded() {
			slower++
		}
	}
	if len(changes) == 0 {
		return []string{fmt.Sprintf("No row changed its level: %s to night %d.", report.CountWord(rows, "row"), last)}
	}
	var parts []string
	if n := have[results.Open] + have[results.Expired]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s that nobody has acknowledged, %d for the worse", report.CountWord(n, "change")+" of level", slower))
	}
	if n := have[results.Provisional]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s in the last %d nights, which the next ones may take back", report.CountWord(n, "change"), results.Tail))
	}
	if n := have[results.Acknowledged]; n > 0 {
		parts = append(parts, report.CountWord(n, "change")+" acknowledged")
	}
	if n := have[results.Small]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of less than %s, which do not matter", report.CountWord(n, "change"), report.Percent(results.LeastEffect)))
	}
	text := strings.Join(parts, "; ")
	return []string{strings.ToUpper(text[:1]) + text[1:] + "."}
}

// sparkOf draws a trend's chart small. Its axes are the chart's.
func sparkOf(c report.Chart) Spark {
	s := Spark{Width: sparkWidth, Height: sparkHeight}
	l := c.Lines
	x := func(v float64) float64 {
		return tenth(3 + (v-l.X.Low)/(l.X.High-l.X.Low)*(sparkWidth-6))
	}
	y := func(v float64) float64 {
		share := math.Log(v/l.Y.Low) / math.Log(l.Y.High/l.Y.Low)
		return tenth(sparkHeight - 2 - share*(sparkHeight-4))
	}
	points := func(list []report.ChartPoint) string {
		var b strings.Builder
		for i, p := range list {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(number(x(p.X)) + "," + number(y(p.Y)))
		}
		return b.String()
	}
	for _, one := range l.Series {
		if one.Level {
			s.Level = points(one.Points)
			continue
		}
		s.Line = points(one.Points)
		first, last := one.Points[0], one.Points[len(one.Points)-1]
		s.LastX, s.LastY = number(x(last.X)), number(y(last.Y))
		s.Text = fmt.Sprintf("from %s to %s %s over %d nights", first.Text, last.Text, l.YTitle, len(one.Points))
	}
	for _, m := range l.Marks {
		s.Marks = append(s.Marks, SparkMark{number(x(m.X)), m.Quiet})
	}
	for _, b := range l.Bands {
		from, to := x(max(b.From, l.X.Low)), x(min(b.To, l.X.High))
		s.Tail, s.TailWidth = number(from), number(tenth(to-from))
	}
	return s
}

func tenth(v float64) float64 { return math.Round(10*v) / 10 }

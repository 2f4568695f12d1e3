package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
)

// model reads a record that report's tests keep: of the form of a GPU's, with
// figures from a model.
func model(t *testing.T, name string) *results.Record {
	t.Helper()
	r, err := results.ReadFile(filepath.Join("..", "testdata", "model_"+name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// measured reads a record that the CPU device measured.
func measured(t *testing.T) *results.Record {
	t.Helper()
	r, err := results.ReadFile(filepath.Join("testdata", "cpu.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, extra page.Extra, records ...report.Named) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, records, extra); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// samples are the records that every page must carry.
func samples(t *testing.T) map[string][]report.Named {
	t.Helper()
	out := map[string][]report.Named{}
	one := func(name string, r *results.Record, change func(*results.Record)) {
		if change != nil {
			change(r)
		}
		out[name] = []report.Named{{Name: name + ".json", Record: r}}
	}
	one("cpu", measured(t), nil)
	one("gpu", model(t, "batches"), environment)
	one("gpus", model(t, "gpus"), nil)
	one("dispatch", model(t, "dispatch"), nil)
	one("one process", model(t, "one_process"), nil)
	one("no cells", model(t, "batches"), func(r *results.Record) { r.Cells = nil })
	one("one configuration", model(t, "batches"), func(r *results.Record) {
		for i := range r.Cells {
			c := &r.Cells[i]
			c.Configurations, c.Ratios, c.Headline = c.Configurations[:1], nil, results.Headline{Withheld: "no captured configuration was run"}
		}
	})
	one("failed", model(t, "batches"), func(r *results.Record) {
		c := &r.Cells[1]
		*c = results.Cell{Key: c.Key, Status: results.Failed, Failure: "worker 0 ended with exit status 2; the end of its stderr:\npanic: out of memory\nmain.main()"}
		r.Cells[2].Status, r.Cells[2].Failure = results.Failed, "worker 2 was killed"
		r.Warnings = []results.Warning{{Code: "load", Text: "the machine was busy"}}
		for i, text := range []string{"a drifts by 2 %", "b drifts by 3 %"} {
			r.Cells[i].Warnings = []results.Warning{{Code: "drift", Text: text}}
		}
	})
	one("unequal", model(t, "batches"), func(r *results.Record) { r.Cells[0].Verify.Equal = false })
	one("no metrics", model(t, "batches"), func(r *results.Record) {
		for i := range r.Cells {
			for j := range r.Cells[i].Configurations {
				r.Cells[i].Configurations[j].Metrics = nil
			}
			r.Cells[i].Ratios, r.Cells[i].Headline = nil, results.Headline{}
		}
	})
	one("empty", &results.Record{}, nil)
	head := model(t, "batches")
	head.Program.Revision = "99887766554433221100"
	out["two records"] = []report.Named{{Name: "base.json", Record: model(t, "batches")}, {Name: "head.json", Record: head}}
	one("hostile", model(t, "batches"), hostile)
	out["hostile"][0].Name = hostileText + ".json"
	return out
}

// environment adds what a GPU's record has beside its figures.
func environment(r *results.Record) {
	r.Environment.Fields = append(r.Environment.Fields, results.EnvironmentField{Name: "nvml.version", Role: results.Subject, Why: "libnvidia-ml.so.1: not found"})
	r.Environment.Readings = []results.Reading{{Name: "load1", Value: 0.25, N: 1}}
	r.Environment.Calibration = []results.Reading{{Name: "empty_launch_ns", Unit: "ns", Value: 2120, N: 1000}}
	for i := range r.Cells {
		for n := range 30 {
			r.Cells[i].Plans = append(r.Cells[i].Plans, json.RawMessage(fmt.Sprintf(`{"key":"conv %d","choice":{"engine":%d},"source":"timed","offered":8,"time_ns":%d}`, n, n%7, 1000+n)))
		}
	}
}

// hostileText is what a name from a record would need to become markup.
const hostileText = `"'></script></style><script>alert(1)</script><img src=x onerror=alert(2)> & <b onclick="alert(3)">`

func hostile(r *results.Record) {
	r.Device.Description = hostileText
	r.Arguments = []string{hostileText}
	r.Program.Version = hostileText
	r.Warnings = []results.Warning{{Code: hostileText, Text: hostileText}}
	r.Environment.Fields = []results.EnvironmentField{{Name: hostileText, Value: hostileText, Role: results.Bed}}
	r.Environment.Calibration = []results.Reading{{Name: hostileText, Unit: hostileText, Value: 1}}
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Key.Workload = "resnet50" + hostileText
		c.Plans = []json.RawMessage{json.RawMessage(fmt.Sprintf("{%q:%q}", hostileText, hostileText))}
		c.Verify.Modes = []string{hostileText, "b"}
		for j := range c.Configurations {
			c.Configurations[j].Key.Mode += hostileText
			c.Configurations[j].Prepare[0].Phase = hostileText
		}
	}
	r.Cells[0].Status, r.Cells[0].Failure = results.Failed, hostileText
	r.Cells[1].Headline = results.Headline{Withheld: hostileText}
}

// parse reads a page as a browser does.
func parse(t *testing.T, b []byte) *html.Node {
	t.Helper()
	n, err := html.Parse(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func elements(n *html.Node, name string) []*html.Node {
	var out []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && (name == "" || d.Data == name) {
			out = append(out, d)
		}
	}
	return out
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func byID(n *html.Node, id string) *html.Node {
	for _, e := range elements(n, "") {
		if attribute(e, "id") == id {
			return e
		}
	}
	return nil
}

// pageData is the page's data as its script reads it.
type pageData struct {
	Charts    []report.Chart  `json:"charts"`
	Timelines []page.Timeline `json:"timelines"`
	Trends    []report.Chart  `json:"trends"`
}

func dataOf(t *testing.T, doc *html.Node) (out pageData) {
	t.Helper()
	e := byID(doc, "data")
	if e == nil {
		t.Fatal("the page has no data")
	}
	if err := json.Unmarshal([]byte(text(e)), &out); err != nil {
		t.Fatalf("the page's data: %v", err)
	}
	return out
}

func chart(t *testing.T, d pageData, name string) report.Chart {
	t.Helper()
	for _, c := range d.Charts {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no chart %s", name)
	return report.Chart{}
}

const maxBytes = 3_000_000

// The structure of every page: three scripts and the data, nothing that loads,
// no handler, no style beside the sheet; and the policy allows just these.
func TestPageIsClosed(t *testing.T) {
	for name, records := range samples(t) {
		t.Run(name, func(t *testing.T) {
			b := write(t, page.Extra{}, records...)
			if len(b) > maxBytes {
				t.Errorf("the page has %d bytes", len(b))
			}
			doc := parse(t, b)
			var policy string
			for _, e := range elements(doc, "meta") {
				if attribute(e, "http-equiv") == "Content-Security-Policy" {
					policy = attribute(e, "content")
				}
			}
			if !strings.HasPrefix(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
				t.Errorf("the policy is %q", policy)
			}
			scripts := elements(doc, "script")
			if len(scripts) != 4 {
				t.Errorf("there are %d scripts", len(scripts))
			}
			allowed := func(e *html.Node) {
				sum := sha256.Sum256([]byte(text(e)))
				if h := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(policy, "'sha256-"+h+"'") {
					t.Errorf("the policy does not allow the %s %.60q", e.Data, text(e))
				}
			}
			for _, e := range scripts {
				if attribute(e, "type") != "application/json" {
					allowed(e)
				}
			}
			for _, e := range elements(doc, "style") {
				allowed(e)
			}
			for _, e := range elements(doc, "") {
				if slices.Contains([]string{"img", "iframe", "object", "embed", "form", "base", "video", "audio", "b"}, e.Data) {
					t.Errorf("there is a <%s>", e.Data)
				}
				for _, a := range e.Attr {
					if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || a.Key == "srcset" {
						t.Errorf("<%s> has %s=%q", e.Data, a.Key, a.Val)
					}
					if a.Key == "href" && !strings.HasPrefix(a.Val, "#") && a.Val != "data:," {
						t.Errorf("<%s> leads to %q", e.Data, a.Val)
					}
				}
			}
			if bytes.Contains(b, []byte("sourceMappingURL")) {
				t.Error("a script names a file beside the page")
			}
			if bytes.Contains(b, []byte("ZgotmplZ")) {
				t.Error("the template refused something")
			}
			for _, table := range elements(doc, "table") {
				rows := elements(table, "tr")
				want := len(elements(rows[0], "th"))
				for _, row := range rows[1:] {
					if n := len(elements(row, "td")); n != want {
						t.Errorf("%s: a row of %d cells below %d heads: %s", name, n, want, text(row))
					}
				}
			}
			for _, c := range dataOf(t, doc).Charts {
				if byID(doc, "chart-"+c.Name) == nil {
					t.Errorf("%s has no place on the page", c.Name)
				}
				if (c.Lines == nil) == (c.Bars == nil) {
					t.Errorf("%s is neither lines nor bars, or both", c.Name)
				}
			}
		})
	}
}

// A name that would be markup is shown as it is.
func TestNamesAreText(t *testing.T) {
	records := samples(t)["hostile"]
	doc := parse(t, write(t, page.Extra{}, records...))
	for _, id := range []string{"verdict", "doubts", "figures", "charts", "details"} {
		e := byID(doc, id)
		if e == nil {
			t.Errorf("there is no %s", id)
		} else if !strings.Contains(text(e), "<script>alert(1)</script>") || !strings.Contains(text(e), "onerror=alert(2)") {
			t.Errorf("%s does not show the name:\n%.2000s", id, text(e))
		}
	}
	d := dataOf(t, doc)
	if len(d.Charts) == 0 || !strings.Contains(d.Charts[0].Lines.Series[0].Label, "<script>alert(1)</script>") {
		t.Error("the data does not hold the name")
	}
}

// units by which a chart's values are scaled.
var units = map[string]float64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Max(math.Abs(a), math.Abs(b)) }

func same(t *testing.T, what string, got *float64, by, want float64) {
	t.Helper()
	if got == nil || !near(*got*by, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Every point of a chart is the record's figure, with the record's interval,
// and none is missing.
func TestChartsHaveTheRecordsValues(t *testing.T) {
	short := map[string]string{"eager/event/device": "eager/event", "eager/host/device": "eager/host", "graph/event/device": "graph/event", "graph/host/device": "graph/host", "step/inside/device": "step"}
	r := model(t, "batches")
	d := dataOf(t, parse(t, write(t, page.Extra{}, report.Named{Name: "a.json", Record: r})))

	points := func(c report.Chart) map[string]report.ChartPoint {
		out := map[string]report.ChartPoint{}
		for _, s := range c.Lines.Series {
			for _, p := range s.Points {
				out[fmt.Sprint(s.Label, " at ", p.X)] = p
			}
		}
		return out
	}
	step := chart(t, d, "step_time")
	by := units[regexp.MustCompile(`\((\w+)\)`).FindStringSubmatch(step.Lines.YTitle)[1]]
	got, n := points(step), 0
	for _, cell := range r.Cells {
		for _, conf := range cell.Configurations {
			m := conf.Metric(results.StepTimeNs)
			name := fmt.Sprint(short[conf.Key.String()], " at ", cell.Key.Batch)
			p, ok := got[name]
			if n++; !ok {
				t.Errorf("step time: no %s", name)
				continue
			}
			same(t, "step time of "+name, &p.Y, by, m.Summary.Median)
			same(t, "low of "+name, p.Low, by, m.Summary.Interval.Low)
			same(t, "high of "+name, p.High, by, m.Summary.Interval.High)
			if v, ok := report.Quantity(p.Text); !ok || math.Abs(v-p.Y) > 5e-5*p.Y {
				t.Errorf("%s reads %q at %v", name, p.Text, p.Y)
			}
		}
	}
	if len(got) != n || n != 25 {
		t.Errorf("%d points of step time, the record has %d", len(got), n)
	}

	speed, n := points(chart(t, d, "speed_up")), 0
	for _, cell := range r.Cells {
		for _, q := range cell.Ratios {
			if q.Other.Mode == "eager" {
				continue
			}
			name := fmt.Sprint(short[q.Other.String()], " at ", cell.Key.Batch)
			p := speed[name]
			n++
			same(t, "speed-up of "+name, &p.Y, 1, q.Value)
			same(t, "low of "+name, p.Low, 1, q.Interval.Low)
			same(t, "high of "+name, p.High, 1, q.Interval.High)
		}
	}
	if len(speed) != n || n != 15 {
		t.Errorf("%d points of speed-up, the record has %d", len(speed), n)
	}
	if rules := chart(t, d, "speed_up").Lines.Rules; len(rules) != 1 || rules[0].Y != 1 {
		t.Errorf("the line at 1 is %v", rules)
	}

	host := chart(t, d, "host_time").Bars
	metrics := []string{results.SubmitTimeNs, results.HostTimeNs, results.SyncWaitNs}
	if len(host.Panels) != len(r.Cells) {
		t.Fatalf("%d panels of %d cells", len(host.Panels), len(r.Cells))
	}
	for i, cell := range r.Cells {
		panel := host.Panels[i]
		if panel.Title != fmt.Sprintf("batch %d", cell.Key.Batch) || len(panel.Bars) != len(cell.Configurations) {
			t.Errorf("panel %q has %d bars", panel.Title, len(panel.Bars))
		}
		for j, conf := range cell.Configurations {
			bar := panel.Bars[j]
			what := panel.Title + " " + bar.Label
			if bar.Label != short[conf.Key.String()] {
				t.Errorf("%s stands for %s", what, conf.Key)
			}
			for k, m := range metrics {
				s := conf.Metric(m).Summary
				same(t, what+" "+m, &bar.Segments[k].Value, units[panel.Unit], s.Median)
				same(t, what+" low "+m, bar.Segments[k].Low, units[panel.Unit], s.Interval.Low)
				same(t, what+" high "+m, bar.Segments[k].High, units[panel.Unit], s.Interval.High)
			}
			same(t, what+" step", bar.Mark, units[panel.Unit], conf.Metric(results.StepTimeNs).Summary.Median)
		}
	}

	preparation := chart(t, d, "preparation").Bars
	at := 0
	for _, cell := range r.Cells {
		for _, conf := range cell.Configurations {
			if conf.Key.Mode == "eager" {
				continue
			}
			bar := preparation.Panels[0].Bars[at]
			at++
			for _, s := range bar.Segments {
				phase := strings.ReplaceAll(preparation.Parts[s.Part].Name, " ", "_")
				i := slices.IndexFunc(conf.Prepare, func(p results.Phase) bool { return p.Phase == phase })
				if i < 0 {
					t.Errorf("%s: there is no phase %s", bar.Label, phase)
					continue
				}
				same(t, bar.Label+" "+phase, &s.Value, units[preparation.Panels[0].Unit], float64(conf.Prepare[i].Ns))
			}
		}
	}
	if at != 15 || len(preparation.Panels[0].Bars) != at {
		t.Errorf("%d bars of preparation", len(preparation.Panels[0].Bars))
	}

	scaled := model(t, "gpus")
	d = dataOf(t, parse(t, write(t, page.Extra{}, report.Named{Name: "a.json", Record: scaled})))
	for _, cell := range scaled.Cells {
		c := chart(t, d, fmt.Sprintf("scaling_batch%d", cell.Key.Batch))
		for _, conf := range cell.Configurations {
			for _, s := range c.Lines.Series {
				if strings.HasPrefix(s.Label, short[conf.Key.String()]+" (") {
					i := slices.IndexFunc(s.Points, func(p report.ChartPoint) bool { return p.X == float64(cell.Key.GPUs) })
					same(t, s.Label, &s.Points[i].Y, 1, conf.Metric(results.ImagesPerS).Summary.Median)
				}
			}
		}
	}

	slow := model(t, "dispatch")
	d = dataOf(t, parse(t, write(t, page.Extra{}, report.Named{Name: "a.json", Record: slow})))
	lines := chart(t, d, "dispatch").Lines
	if len(lines.Series) != len(slow.Cells) {
		t.Fatalf("%d lines of dispatch", len(lines.Series))
	}
	for i, cell := range slow.Cells {
		for _, q := range cell.Ratios {
			if q.Other.Mode != "step" {
				continue
			}
			j := slices.IndexFunc(lines.Series[i].Points, func(p report.ChartPoint) bool { return near(p.X*1e3, float64(q.Base.DispatchNs)) })
			if j < 0 {
				t.Errorf("batch %d: nothing at %d ns", cell.Key.Batch, q.Base.DispatchNs)
				continue
			}
			same(t, fmt.Sprintf("dispatch %d at batch %d", q.Base.DispatchNs, cell.Key.Batch), &lines.Series[i].Points[j].Y, 1, q.Value)
		}
	}
}

// The table below a chart has what the chart shows.
func TestChartsHaveTables(t *testing.T) {
	for name, records := range samples(t) {
		charts, _ := report.Charts(records)
		for _, c := range charts {
			rows := 0
			if c.Lines != nil {
				for _, s := range c.Lines.Series {
					if !s.Bare {
						rows += len(s.Points)
					}
				}
			} else {
				for _, p := range c.Bars.Panels {
					rows += len(p.Bars)
				}
			}
			if len(c.Table.Rows) != rows || rows == 0 {
				t.Errorf("%s: %s has a table of %d rows, shows %d", name, c.Name, len(c.Table.Rows), rows)
			}
		}
	}
}

// The tables' cells are those of report, with the key they sort by.
func TestFiguresTable(t *testing.T) {
	r := model(t, "batches")
	doc := parse(t, write(t, page.Extra{}, report.Named{Name: "a.json", Record: r}))
	table := elements(byID(doc, "figures"), "table")[0]
	var heads []string
	for _, th := range elements(table, "th") {
		heads = append(heads, text(th))
	}
	step := slices.Index(heads, "step")
	rows := elements(table, "tr")[1:]
	n := 0
	for _, cell := range r.Cells {
		for _, conf := range cell.Configurations {
			td := elements(rows[n], "td")[step]
			want := conf.Metric(results.StepTimeNs).Summary.Median
			if text(td) != report.Duration(want) {
				t.Errorf("row %d shows %q, want %q", n, text(td), report.Duration(want))
			}
			var key float64
			if _, err := fmt.Sscan(attribute(td, "data-key"), &key); err != nil || math.Abs(key-want) > 0.005*want {
				t.Errorf("row %d sorts by %q, is %v", n, attribute(td, "data-key"), want)
			}
			n++
		}
	}
	if n != len(rows) {
		t.Errorf("%d rows for %d configurations", len(rows), n)
	}
}

// What makes all figures meaningless comes before everything else.
func TestUnequalComesFirst(t *testing.T) {
	for name, want := range map[string]bool{"unequal": true, "gpu": false} {
		verdict := byID(parse(t, write(t, page.Extra{}, samples(t)[name]...)), "verdict")
		first := elements(verdict, "")[0]
		if got := attribute(first, "class") == "evidence bad"; got != want || want && !strings.Contains(text(first), "not found equal") {
			t.Errorf("%s begins with %s %q", name, first.Data, text(first))
		}
	}
}

// The headlines as drawn: where 1 lies, on which side of it an interval.
func TestForest(t *testing.T) {
	doc := parse(t, write(t, page.Extra{}, samples(t)["gpu"]...))
	var tones []string
	for _, e := range elements(byID(doc, "verdict"), "circle") {
		tones = append(tones, strings.TrimPrefix(attribute(e, "class"), "dot "))
	}
	// By the record's intervals: 1.394..1.415, 1.007..1.046, 1.004..1.061, 0.995..1.061, 1.021..1.054.
	if want := []string{"faster", "faster", "faster", "unclear", "faster"}; !slices.Equal(tones, want) {
		t.Errorf("the points are %q, want %q", tones, want)
	}
	var one float64
	for _, e := range elements(byID(doc, "verdict"), "line") {
		if attribute(e, "class") == "one" {
			fmt.Sscan(attribute(e, "x1"), &one)
		}
	}
	for i, e := range elements(byID(doc, "verdict"), "circle") {
		var x float64
		fmt.Sscan(attribute(e, "cx"), &x)
		if x <= one {
			t.Errorf("point %d, above 1, stands at %v, and 1 at %v", i, x, one)
		}
	}
}

// What is carried is what npm has, and says whose it is.
func TestPackages(t *testing.T) {
	list, err := page.Packages()
	if err != nil || len(list) != 2 {
		t.Fatalf("%d packages, %v", len(list), err)
	}
	b := write(t, page.Extra{}, samples(t)["gpu"]...)
	doc := parse(t, b)
	for _, p := range list {
		script, err := os.ReadFile(filepath.Join("npm", p.Name, p.File))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(script)
		if got := hex.EncodeToString(sum[:]); got != p.SHA256 {
			t.Errorf("%s has the hash %s, not %s", p.File, got, p.SHA256)
		}
		if banner := string(script[:200]); !strings.Contains(banner, "v"+p.Version) || !strings.Contains(banner, "MIT") {
			t.Errorf("%s is not %s: %s", p.File, p.Version, banner)
		}
		if p.License != "MIT" || !strings.Contains(p.LicenseText, "The above copyright notice") || !strings.HasPrefix(p.Integrity, "sha512-") || p.InPackage == "" {
			t.Errorf("%s: %+v", p.Name, p)
		}
		if !strings.Contains(text(elements(doc, "footer")[0]), strings.TrimSpace(p.LicenseText)) {
			t.Errorf("the page lacks the licence of %s", p.Name)
		}
		if strings.Contains(string(script), "</script") || strings.Contains(string(script), "<!--") {
			t.Errorf("%s would end its element", p.File)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	if err := page.Write(&bytes.Buffer{}, nil, page.Extra{}); !errors.Is(err, report.ErrNoRecords) {
		t.Errorf("no records: %v", err)
	}
	records := samples(t)["empty"]
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("record.json", `{"schema":{}}`)
	put("other.html", "<!DOCTYPE html><title>mine</title>")
	put("empty.html", "")
	if err := os.Symlink(at("new.html"), at("link.html")); err != nil {
		t.Fatal(err)
	}
	// The link leads nowhere yet: the page goes where it says.
	if err := page.WriteFile(at("link.html"), records, page.Extra{}); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"record.json": "is there and no page of this program", "other.html": "is there and no page of this program", ".": "is no file",
		"none/new.html": "no such file or directory", "empty.html": "", "new.html": "", "link.html": "",
	} {
		before, _ := os.ReadFile(at(name))
		err := page.WriteFile(at(name), records, page.Extra{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(at(name)); want != "" && !bytes.Equal(before, after) {
			t.Errorf("%s was changed", name)
		}
	}
	// A page may take the place of a page, through a link too.
	for _, name := range []string{"new.html", "link.html"} {
		if err := page.WriteFile(at(name), samples(t)["gpu"], page.Extra{}); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	if info, err := os.Lstat(at("link.html")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if b, err := os.ReadFile(at("new.html")); err != nil || !bytes.Contains(b, []byte("resnet50")) {
		t.Errorf("the page behind the link: %v", err)
	}
}

// The same records give the same bytes, so that a page can be kept and compared.
func TestPageRepeats(t *testing.T) {
	records := samples(t)["two records"]
	if !bytes.Equal(write(t, page.Extra{}, records...), write(t, page.Extra{}, records...)) {
		t.Error("two pages of the same records differ")
	}
}

package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/gpuinfo"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// The records of testdata/records were made on a busy machine of 2 CPUs, the
// heads by a program built without optimisation:
//
//	go build -gcflags='all=-N -l' -tags=unoptimised -o head ./cmd/trbench
//	trbench run --workload=golden-tiny --batch=4 --mode=eager,step --sync=event --blocks=3 --steps=10 --warmup=2 --device=cpu --processes=8
//
// base2 and head2 are the confirmation, of 12 processes; again is base again;
// quick has 3 processes.
func recordsIn(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copies := map[string]string{"mon": "base", "tue": "again", "wed": "base2", "thu": "quick"}
	files, err := filepath.Glob(filepath.Join("testdata", "records", "*.json.gz"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	have := map[string]*results.Record{}
	for _, f := range files {
		r, err := results.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		have[strings.TrimSuffix(filepath.Base(f), ".json.gz")] = r
	}
	for name, of := range copies {
		have[name] = have[of]
	}
	for name, r := range have {
		store(t, dir, name+".json", r)
	}
	return dir
}

func store(t *testing.T, dir, name string, r *results.Record) {
	t.Helper()
	if _, err := results.Write(filepath.Join(dir, name), r); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, dir, name string) *results.Record {
	t.Helper()
	r, err := results.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func compareIn(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return invoke(t, t.Context(), fakeEngine(), dir, append([]string{"compare"}, args...)...)
}

// judged runs a comparison and reads its JSON.
func judged(t *testing.T, dir string, args ...string) (int, results.Comparison) {
	t.Helper()
	code, stdout, stderr := compareIn(t, dir, append(args, "--format=json")...)
	var c results.Comparison
	if err := json.Unmarshal([]byte(stdout), &c); err != nil {
		t.Fatalf("%v: %v: %s", args, err, stderr)
	}
	return code, c
}

// TestCompareExamples runs the examples in the command's help.
func TestCompareExamples(t *testing.T) {
	dir := recordsIn(t)
	want := map[string]struct {
		code int
		say  string
	}{
		"base.json head.json":                                                     {3, "Verdict: slower"},
		"mon.json,tue.json,wed.json thu.json":                                     {3, "Verdict: ambiguous"},
		"base.json head.json --explain=eager/event/device/step_time_ns":           {3, "of 64 pairs have head above base"},
		"base.json head.json --confirm-base=base2.json --confirm-head=head2.json": {1, "confirmed, again "},
		"base.json head.json --format=junit":                                      {3, "<testsuites "},
		"base.json head.json --html=page.html":                                    {3, "Verdict: slower"},
	}
	for line := range strings.Lines(newCompareCmd(&Env{}).Example) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "trbench compare ")
		expected, known := want[args]
		if !ok || !known {
			t.Errorf("an example that is not tested: %s", line)
			continue
		}
		delete(want, args)
		code, stdout, stderr := compareIn(t, dir, strings.Fields(args)...)
		if code != expected.code || !strings.Contains(stdout, expected.say) {
			t.Errorf("%s: exit %d, %s\n%s", args, code, stderr, stdout)
		}
	}
	for args := range want {
		t.Errorf("no example: %s", args)
	}
}

// TestCompareOutput keeps each format's text; -update writes it anew.
func TestCompareOutput(t *testing.T) {
	dir := recordsIn(t)
	for name, args := range map[string]string{
		"text": "base.json head.json", "markdown": "base.json head.json --format=markdown", "csv": "base.json head.json --format=csv",
		"junit": "base.json head.json --format=junit", "explain": "base.json head.json --explain=eager/event",
		"confirmed":       "base.json head.json --confirm-base=base2.json --confirm-head=head2.json",
		"junit_confirmed": "base.json head.json --confirm-base=base2.json --confirm-head=head2.json --format=junit",
		"unchanged":       "base.json again.json", "runs": "mon.json,tue.json,wed.json thu.json --explain=inside/device/step_time_ns",
	} {
		_, stdout, stderr := compareIn(t, dir, strings.Fields(args)...)
		file := filepath.Join("testdata", "compare", name)
		if *update {
			if err := os.WriteFile(file, []byte(stdout), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if stdout != string(want) {
			t.Errorf("%s: %s\n%s\nwant\n%s", args, stderr, stdout, want)
		}
	}
}

// Only what was found twice exits 1; what was measured once, or by single
// processes, exits 3 and says on stderr what to do.
func TestCompareExitCodes(t *testing.T) {
	dir := recordsIn(t)
	for _, name := range []string{"base", "head"} {
		r := load(t, dir, name+".json")
		keep(r, 1)
		store(t, dir, name+"1.json", r)
	}
	for _, test := range []struct {
		args   string
		code   int
		stderr string
		says   []string
	}{
		{"base.json head.json", exitInconclusive, "trbench: slower (6 rows: 5 slower, 1 ambiguous); measured once, so not confirmed\nhint: measure both sides again, in 12 fresh processes each at another time, and give those records as --confirm-base and --confirm-head\n", nil},
		{"base.json head.json --confirm-base=base2.json --confirm-head=head2.json", exitFailure, "trbench: slower (6 rows: ", []string{"confirmed, again "}},
		{"base1.json head1.json", exitInconclusive, "trbench: ambiguous (6 rows: 6 ambiguous)\nhint: measure with at least 5 processes a side (6 rows)\n",
			[]string{"  -  1         1%        1:1  too_few_processes", "measure with at least 5 processes a side (6 rows)"}},
		{"base1.json head1.json --explain=eager/event/device/step_time_ns", exitInconclusive, "hint: measure with at least 5 processes a side (6 rows)\n",
			[]string{"1 process against 1 cannot tell: the least p they can reach is 1, and one of 6 rows needs 0.00833", "the median of 1 run, 1 process\n", "none: so few processes give none"}},
		{"head.json base.json", exitInconclusive, "hint: measure again with more processes", nil},
	} {
		code, stdout, stderr := compareIn(t, dir, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%s: exit %d, want %d: %s", test.args, code, test.code, stderr)
		}
		for _, want := range test.says {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: lacks %q:\n%s", test.args, want, stdout)
			}
		}
	}
}

// Every format says the same, and a program can read what programs read.
func TestCompareFormatsAgree(t *testing.T) {
	dir := recordsIn(t)
	_, c := judged(t, dir, "base.json", "head.json")
	_, text, _ := compareIn(t, dir, "base.json", "head.json", "--format=json")
	for _, list := range []string{`"allowed": []`, `"only_base": []`, `"exact": []`, `"partial": []`} {
		if !strings.Contains(text, list) {
			t.Errorf("JSON lacks %s", list)
		}
	}
	verdicts := map[string]string{}
	slower, ambiguous := 0, 0
	for _, v := range c.Rows {
		verdicts[v.Row.String()] = v.Verdict
		switch v.Verdict {
		case results.Slower:
			slower++
		case results.Ambiguous:
			ambiguous++
		}
	}
	if len(verdicts) != 6 || slower == 0 || c.Verdict != results.Slower || c.Confirmed || c.Schema.Name != results.ComparisonName ||
		len(c.Suspects) != 1 || c.Suspects[0].Name != "go.tags" || c.Suspects[0].Base[0] != "none" || c.Suspects[0].Head[0] != "unoptimised" || len(c.Warnings) == 0 {
		t.Errorf("%s, %d rows, %d slower, suspects %v", c.Verdict, len(verdicts), slower, c.Suspects)
	}
	_, stdout, _ := compareIn(t, dir, "base.json", "head.json", "--format=csv")
	lines, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	found, warned := 0, 0
	for _, l := range lines[1:] {
		if l[0] == "row" && verdicts[l[1]] == l[2] {
			found++
		}
		if l[0] == "warning" {
			warned++
		}
	}
	if found != 6 || warned != len(c.Warnings) {
		t.Errorf("CSV has %d rows with their verdicts and %d warnings of %d", found, warned, len(c.Warnings))
	}
	_, stdout, _ = compareIn(t, dir, "base.json", "head.json", "--format=junit")
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Skipped int `xml:"skipped,attr"`
			Cases   []struct {
				Class   string    `xml:"classname,attr"`
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
			Err string `xml:"system-err"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(stdout), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 6 || suites.Failures != 0 || suites.Suites[0].Skipped != slower+ambiguous || !strings.Contains(suites.Suites[0].Err, "[load]") {
		t.Errorf("JUnit %+v", suites)
	}
	for _, x := range suites.Suites[0].Cases {
		v := verdicts[x.Class+"/"+x.Name]
		if x.Failure != nil || (x.Skipped != nil) != (v == results.Slower || v == results.Ambiguous) || v == "" {
			t.Errorf("JUnit case %s/%s of verdict %q", x.Class, x.Name, v)
		}
	}
}

// each visits the samples and the summaries of gated metrics.
func each(r *results.Record, visit func(m *results.Metric)) {
	for i := range r.Cells {
		for j := range r.Cells[i].Configurations {
			x := &r.Cells[i].Configurations[j]
			for _, name := range results.Gated() {
				visit(x.Metric(name))
			}
		}
	}
}

func scale(r *results.Record, by float64) {
	each(r, func(m *results.Metric) {
		m.Value *= by
		for i := range m.Samples {
			m.Samples[i].Value *= by
		}
		s := m.Summary
		for _, v := range []*float64{&s.Median, &s.P10, &s.P90, &s.P99, &s.Max, &s.Interval.Low, &s.Interval.High} {
			*v *= by
		}
		for i := range s.Processes {
			s.Processes[i] *= by
		}
	})
}

// keep leaves the first n processes.
func keep(r *results.Record, n int) {
	for i := range r.Cells {
		r.Cells[i].Processes = r.Cells[i].Processes[:n]
	}
	each(r, func(m *results.Metric) {
		m.Samples = slices.DeleteFunc(m.Samples, func(s results.Sample) bool { return s.Process >= n })
		m.Summary = nil
	})
}

func TestCompareOddRecords(t *testing.T) {
	cases := []struct {
		name   string
		change func(base, head *results.Record)
		args   string
		code   int
		say    string // on stdout, or for exit 2 and 4 on stderr
	}{
		{"twice as slow", func(_, h *results.Record) { scale(h, 64) }, "", 3, "Verdict: slower (6 rows: 6 slower); measured once, so not confirmed"},
		{"twice as fast", func(_, h *results.Record) { scale(h, 1./64) }, "", 0, "Verdict: faster (6 rows: 6 faster)"},
		{"both scaled", func(b, h *results.Record) { scale(b, 1024); scale(h, 1024) }, "", 0, "Verdict: same (6 rows: 6 same)"},
		{"one process", func(_, h *results.Record) { keep(h, 1) }, "", 3, "8 processes of base against 4 of head"},
		{"three processes", func(b, h *results.Record) { keep(b, 3); keep(h, 3) }, "", 3, "at least 5 processes a side"},
		{"no process", func(_, h *results.Record) { keep(h, 0) }, "", 3, "no_figures"},
		{"one value", func(b, h *results.Record) {
			for _, r := range []*results.Record{b, h} {
				each(r, func(m *results.Metric) {
					for i := range m.Samples {
						m.Samples[i].Value = 1000
					}
					m.Summary = nil
				})
			}
		}, "", 0, "Verdict: same (6 rows: 6 same)"},
		{"zeros", func(_, h *results.Record) {
			each(h, func(m *results.Metric) {
				for i := range m.Samples {
					m.Samples[i].Value = 0
				}
				m.Summary = nil
			})
		}, "", 3, "bad_figures"},
		{"a configuration less", func(_, h *results.Record) { h.Cells[0].Configurations = h.Cells[0].Configurations[:1] }, "", 3, "Only in base"},
		{"a configuration more", func(b, _ *results.Record) { b.Cells[0].Configurations = b.Cells[0].Configurations[:1] }, "", 0, "Only in head"},
		{"other cells", func(_, h *results.Record) { h.Cells[0].Key.Batch++ }, "", 2, "have no row in common"},
		{"unfinished", func(_, h *results.Record) { h.Status = results.Incomplete }, "", 3, "head: head.json is not complete"},
		{"a failed cell", func(b, _ *results.Record) { b.Cells[0].Status = results.Failed }, "", 3, "golden-tiny batch 4 gpus 1 failed"},
		{"an edited sample", func(_, h *results.Record) { h.Cells[0].Configurations[0].Metrics[0].Samples[0].Value *= 3 }, "", 2, "it was edited after the run"},
		{"unequal modes", func(_, h *results.Record) { h.Cells[0].Verify.Equal = false }, "", 4, "were not found equal"},
		{"another machine", func(_, h *results.Record) { field(h, "cpu.model").Value = "Other" }, "", 2,
			"were not measured in the same place: cpu.model is AMD EPYC against Other\nhint: compare runs of one machine, or let it pass with --allow=cpu.model"},
		{"another machine, allowed", func(_, h *results.Record) { field(h, "cpu.model").Value = "Other" }, "--allow=cpu.model", 0, "Differs, and was allowed to\n  cpu.model: AMD EPYC -> Other"},
		{"two fields, one allowed", func(_, h *results.Record) { field(h, "cpu.model").Value = "Other"; h.Host.CPUs = 5 }, "--allow=cpu.model", 2, "host.cpus is 2 against 5"},
		{"an unknown field", func(_, h *results.Record) { f := field(h, "cpu.model"); f.Value, f.Why = "", "not read" }, "", 2, "cpu.model is AMD EPYC against not known (not read)"},
		{"a variable", func(_, h *results.Record) {
			h.Environment.Fields = append(h.Environment.Fields, results.EnvironmentField{Name: "env.GOGC", Value: "5", Role: results.Bed})
		}, "", 2, "env.GOGC is (not set) against 5"},
		{"longer blocks", func(_, h *results.Record) { h.Cells[0].Steps = 99 }, "", 2, "steps is 10 against 99"},
		{"another driver", func(_, h *results.Record) { field(h, "driver.version").Value = "999" }, "", 0, "Suspects: what differs between base and head\n  driver.version: not known"},
		{"a field that is none", func(_, _ *results.Record) {}, "--allow=cpu.colour", 2, `--allow names "cpu.colour", which no record has`},
		{"fewer launches", func(_, h *results.Record) { h.Cells[0].Configurations[0].Counts.Launches.Host = results.Count(7) }, "", 0, "eager/event/device, launches.host: 69 -> 7"},
		{"other plans", func(_, h *results.Record) { h.Cells[0].Plans = []json.RawMessage{[]byte(`{"engine":3}`)} }, "", 0, `gpus 1, plans: none -> {"engine":3}`},
		{"before 1.1", func(b, h *results.Record) {
			b.Environment, h.Environment = results.Environment{}, results.Environment{}
			h.Program.Go = "go9"
		}, "", 0, "go.version: go1.26.8 -> go9"},
	}
	from := recordsIn(t)
	for _, c := range cases {
		dir := t.TempDir()
		base, head := load(t, from, "base.json"), load(t, from, "base.json")
		head.Created = head.Created.Add(1) // another run with the same figures
		c.change(base, head)
		store(t, dir, "base.json", base)
		store(t, dir, "head.json", head)
		code, stdout, stderr := compareIn(t, dir, append([]string{"base.json", "head.json"}, strings.Fields(c.args)...)...)
		said := stdout
		if c.code == exitUsage || c.code == exitDisagree {
			said = stderr
		}
		if code != c.code || !strings.Contains(said, c.say) {
			t.Errorf("%s: exit %d, want %d with %q\n%s\n%s", c.name, code, c.code, c.say, stderr, stdout)
		}
	}
}

func field(r *results.Record, name string) *results.EnvironmentField {
	for i := range r.Environment.Fields {
		if f := &r.Environment.Fields[i]; f.Name == name {
			return f
		}
	}
	panic("no field " + name)
}

func TestCompareUsage(t *testing.T) {
	dir := recordsIn(t)
	whole, err := os.ReadFile(filepath.Join(dir, "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("cut.json", whole[:len(whole)/2])
	write("nan.json", bytes.Replace(whole, []byte(`"value": `), []byte(`"value": NaN`), 1))
	write("with,comma.json", whole)
	for _, c := range []struct{ args, say string }{
		{"", "compare takes two sides, BASE and HEAD, not 0"},
		{"base.json", "not 1"},
		{"base.json head.json again.json", "not 3"},
		{"base.json none.json", "none.json: cannot be opened"},
		{"cut.json head.json", "cut.json: ends in the middle"},
		{"base.json nan.json", "nan.json: is not JSON at byte"},
		{"base.json,base.json head.json", "record base.json is given twice, as base.json of base and as base: it would count twice"},
		{"base.json, head.json", "have an empty name"},
		{"base.json head.json --confirm-base=base2.json", "go together"},
		{"base.json head.json --confirm-base=base.json --confirm-head=head2.json", "base.json is given twice"},
		{"base.json head.json --format=pdf", `--format "pdf" is unknown; known: text, markdown, json, junit, csv`},
		{"base.json head.json --format=csv,json", "must be one of"},
		{"base.json head.json --explain=nothing", `--explain "nothing" is in no row's name`},
		{"base.json head.json --explain=", "--explain takes a row's name"},
		{"base.json head.json --explain=step --format=json", "prints text"},
	} {
		code, stdout, stderr := compareIn(t, dir, strings.Fields(c.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.say) {
			t.Errorf("%q: exit %d, stdout %q, stderr %s", c.args, code, stdout, stderr)
		}
	}
	if code, stdout, stderr := compareIn(t, dir, "with,comma.json", "base.json"); code != exitOK || !strings.Contains(stdout, "base.json is on both sides") {
		t.Errorf("a comma in a name: exit %d, %s\n%s", code, stderr, stdout)
	}
}

// Swapped sides mirror the verdicts, and confirming takes two slower ones.
func TestCompareMirrorsAndConfirms(t *testing.T) {
	dir := recordsIn(t)
	_, forth := judged(t, dir, "base.json", "head.json")
	code, back := judged(t, dir, "head.json", "base.json")
	mirror := map[string]string{results.Slower: results.Faster, results.Faster: results.Slower, results.Same: results.Same, results.Ambiguous: results.Ambiguous}
	for i, v := range forth.Rows {
		if w := back.Rows[i]; w.Verdict != mirror[v.Verdict] || math.Abs(*v.P-*w.P) > 1e-12 || w.Row != v.Row {
			t.Errorf("%s: %s, swapped %s", v.Row, v.Verdict, w.Verdict)
		}
	}
	if code == exitFailure {
		t.Errorf("exit %d", code)
	}
	// The first measurement says slower; base against itself does not.
	code, c := judged(t, dir, "base.json", "head.json", "--confirm-base=again.json", "--confirm-head=quick.json")
	for _, v := range c.Rows {
		if v.Verdict == results.Slower || v.First == results.Slower && v.Verdict != results.Ambiguous {
			t.Errorf("%s: first %s, then %s: %s", v.Row, v.First, v.Verdict, v.Why)
		}
	}
	if code != exitInconclusive || !c.Confirmed {
		t.Errorf("exit %d, confirmed %v", code, c.Confirmed)
	}
	bad := load(t, dir, "again.json")
	bad.Created = bad.Created.Add(1)
	store(t, dir, "copy.json", bad)
	code, c = judged(t, dir, "base.json", "head.json", "--confirm-base=again.json", "--confirm-head=copy.json")
	for _, v := range c.Rows {
		// The machine was busy, and base itself is slower in some rows.
		want, reason := results.Same, results.NotRepeated
		if v.BaseAgain != nil && v.BaseAgain.Verdict == results.Slower {
			want, reason = results.Ambiguous, results.BaseSlowerToo
		}
		if v.First == results.Slower && (v.Verdict != want || v.Reason != reason || v.BaseAgain == nil) {
			t.Errorf("%s: %s, %s: %s", v.Row, v.Verdict, v.Reason, v.Why)
		}
	}
	if code == exitFailure {
		t.Errorf("exit %d though nothing repeated", code)
	}
	// The second family is the slower rows alone, and their noise the first's.
	huge, again := load(t, dir, "head.json"), load(t, dir, "head2.json")
	scale(huge, 64)
	scale(again, 64)
	store(t, dir, "huge.json", huge)
	store(t, dir, "huge2.json", again)
	_, c = judged(t, dir, "base.json", "head.json", "--confirm-base=base2.json", "--confirm-head=head2.json")
	for _, v := range c.Rows {
		if x := v.Confirmation; x != nil && x.Family != 5 {
			t.Errorf("%s: a second family of %d rows", v.Row, x.Family)
		}
	}
	_, c = judged(t, dir, "mon.json,again.json,quick.json", "huge.json", "--confirm-base=base2.json", "--confirm-head=huge2.json")
	for _, v := range c.Rows {
		if x := v.Confirmation; x == nil || v.Noise == nil || v.NoiseRuns != 3 || x.Noise == nil || *x.Noise != *v.Noise || x.NoiseRuns != 0 || v.Reason != results.Confirmed {
			t.Errorf("%s: %s, %s, noise %v of %d runs, then %+v", v.Row, v.Verdict, v.Reason, v.Noise, v.NoiseRuns, x)
		}
	}
}

// The page of a comparison has the verdict's rows first and both sides' records
// below; what is printed and the exit code stay as they are without it.
func TestComparePage(t *testing.T) {
	dir := recordsIn(t)
	plainCode, plainOut, plainErr := compareIn(t, dir, "base.json", "head.json")
	code, stdout, stderr := compareIn(t, dir, "base.json", "head.json", "--html=page.html")
	if code != plainCode || stdout != plainOut || stderr != "page.html\n"+plainErr {
		t.Errorf("code %d, want %d; stderr %q, was %q; stdout differs: %v", code, plainCode, stderr, plainErr, stdout != plainOut)
	}
	b, err := os.ReadFile(filepath.Join(dir, "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) int { return bytes.Index(b, []byte(s)) }
	first, second := at("Head is slower than base in"), at(`id="verdict"`)
	if first < 0 || second < first || at("tags=unoptimised") > 0 && at("Suspects") < 0 || at("<li>base.json") < second || at("<li>head.json") < second {
		t.Errorf("the page's parts: comparison %d, records' verdict %d, base %d, head %d", first, second, at("<li>base.json"), at("<li>head.json"))
	}
	_, c := judged(t, dir, "base.json", "head.json")
	for _, v := range c.Rows {
		if at(": "+v.Row.String()+"</summary>") < 0 {
			t.Errorf("the page has no numbers of %s", v.Row)
		}
	}

	// A record on both sides stands there once; other formats may go with a page.
	code, stdout, _ = compareIn(t, dir, "base.json", "base.json", "--html=page.html", "--format=json")
	if !json.Valid([]byte(stdout)) {
		t.Errorf("code %d: stdout is no JSON: %.80s", code, stdout)
	}
	if b, err = os.ReadFile(filepath.Join(dir, "page.html")); err != nil || bytes.Count(b, []byte("<li>base.json")) != 1 {
		t.Errorf("%d places for one record, %v", bytes.Count(b, []byte("<li>base.json")), err)
	}
	for _, c := range [][]string{{"--html="}, {"--html=base.json"}, {"--html=none/page.html"}} {
		if code, _, stderr := compareIn(t, dir, append(c, "base.json", "head.json")...); code != 2 || !strings.Contains(stderr, "--html") {
			t.Errorf("%s: code %d, %s", c, code, stderr)
		}
	}
}

// Every field of the bed that a record has can be allowed, before there is one.
func TestBedFields(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "results", "2026-11-30-h200", "*.json*"))
	if err != nil {
		t.Fatal(err)
	}
	list := []results.Environment{readMachine(t.Context(), nil, nil)}
	gpus := 0
	for _, f := range files {
		if r, err := results.ReadFile(f); err == nil {
			list = append(list, r.Environment)
			gpus++
		}
	}
	if gpus == 0 {
		t.Fatal("no record of a GPU")
	}
	seen := map[string]bool{}
	for _, e := range list {
		for _, f := range e.Fields {
			if f.Role == results.Bed && !bedField(f.Name) {
				t.Errorf("%s is not known", f.Name)
			}
			seen[f.Name] = true
		}
	}
	for _, name := range slices.Concat(machine.BedFields(), placeFields) {
		if !bedField(name) {
			t.Errorf("%s is not known", name)
		}
	}
	if !seen[machine.GPUName] || !seen[gpuinfo.Multiprocessors] {
		t.Errorf("no record has a GPU's fields: %v", slices.Sorted(maps.Keys(seen)))
	}
}

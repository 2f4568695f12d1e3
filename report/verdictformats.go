package report

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

func verdictJSON(w io.Writer, c *results.Comparison) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return fmt.Errorf("encode comparison: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Kinds of a comparison's CSV lines beside kindWarning.
const (
	kindVerdict  = "verdict"   // the whole
	kindRow      = "row"       // a row on both sides
	kindOnlyBase = "only_base" // a row that head lacks
	kindOnlyHead = "only_head" // a row that base lacks
	kindExact    = "exact"     // a count or a choice
	kindSuspect  = "suspect"   // a field of the subject
	kindAllowed  = "allowed"   // a field of the bed
	kindMissing  = "missing"   // what a record should have
)

func verdictHeader() []string {
	return []string{
		"kind", "name", "verdict", "reason", "base", "head", "unit", "ratio", "low", "high", "level", "coverage",
		"u", "p", "adjusted_p", "alpha", "family", "floor_p", "noise", "noise_runs", "threshold",
		"base_runs", "head_runs", "base_processes", "head_processes", "need_base", "need_head",
		"first", "confirming_verdict", "confirming_ratio", "confirming_p", "record", "note", "next",
	}
}

// verdictCSV writes a line a row, and one for whatever else there is to say,
// with all digits.
func verdictCSV(w io.Writer, c *results.Comparison) error {
	out := csv.NewWriter(w)
	header := verdictHeader()
	lines := []csvLine{{"kind": kindVerdict, "verdict": c.Verdict, "note": VerdictLine(c)}}
	for _, l := range []struct {
		kind string
		list []results.FieldDifference
	}{{kindSuspect, c.Suspects}, {kindAllowed, c.Allowed}} {
		for _, d := range l.list {
			lines = append(lines, csvLine{"kind": l.kind, "name": d.Name, "base": strings.Join(d.Base, " or "), "head": strings.Join(d.Head, " or "), "note": d.Why})
		}
	}
	for i := range c.Rows {
		lines = append(lines, rowLine(&c.Rows[i]))
	}
	for _, k := range c.OnlyBase {
		lines = append(lines, csvLine{"kind": kindOnlyBase, "name": k.String()})
	}
	for _, k := range c.OnlyHead {
		lines = append(lines, csvLine{"kind": kindOnlyHead, "name": k.String()})
	}
	for _, d := range c.Exact {
		lines = append(lines, csvLine{"kind": kindExact, "name": exactPlace(d), "base": d.Base, "head": d.Head})
	}
	for _, p := range c.Partial {
		lines = append(lines, csvLine{"kind": kindMissing, "note": p})
	}
	for _, x := range c.Warnings {
		at := ""
		if x.Cell != nil {
			at = x.Cell.Name()
		}
		lines = append(lines, csvLine{"kind": kindWarning, "name": x.Warning.Code, "record": x.Record, "note": strings.TrimPrefix(at+": "+x.Warning.Text, ": ")})
	}
	if err := out.Write(header); err != nil {
		return err
	}
	for _, line := range lines {
		words := make([]string, len(header))
		for i, h := range header {
			words[i] = plain(line[h])
		}
		if err := out.Write(words); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func rowLine(v *results.RowVerdict) csvLine {
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return exact(*x)
	}
	l := csvLine{
		"kind": kindRow, "name": v.Row.String(), "verdict": v.Verdict, "reason": v.Reason, "unit": v.Unit,
		"base": number(v.Base.Median), "head": number(v.Head.Median), "ratio": number(v.Ratio),
		"u": number(v.U), "p": number(v.P), "adjusted_p": number(v.AdjustedP), "alpha": exact(v.Alpha), "family": strconv.Itoa(v.Family),
		"floor_p": number(v.FloorP), "noise": number(v.Noise), "noise_runs": strconv.Itoa(v.NoiseRuns), "threshold": exact(v.Threshold),
		"base_runs": strconv.Itoa(len(v.Base.Runs)), "head_runs": strconv.Itoa(len(v.Head.Runs)),
		"base_processes": strconv.Itoa(v.Base.Processes), "head_processes": strconv.Itoa(v.Head.Processes),
		"need_base": strconv.Itoa(v.NeedBase), "need_head": strconv.Itoa(v.NeedHead), "first": v.First, "note": v.Why, "next": v.Next,
	}
	if i := v.Interval; i != nil {
		l["low"], l["high"], l["level"], l["coverage"] = exact(i.Low), exact(i.High), exact(i.Level), exact(i.Coverage)
	}
	if c := v.Confirmation; c != nil {
		l["confirming_verdict"], l["confirming_ratio"], l["confirming_p"] = c.Verdict, number(c.Ratio), number(c.AdjustedP)
	}
	return l
}

// JUnit's XML, as CI servers read it: a row is a test case, which fails if it
// is slower and confirmed, and is skipped if it cannot be told or was measured
// once.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
		SystemOut  string          `xml:"system-out,omitempty"`
		SystemErr  string          `xml:"system-err,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class     string        `xml:"classname,attr"`
		Name      string        `xml:"name,attr"`
		Failure   *junitMessage `xml:"failure"`
		Skipped   *junitMessage `xml:"skipped"`
		SystemOut string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func verdictJUnit(w io.Writer, c *results.Comparison) error {
	s := junitSuite{Name: "trbench compare", SystemOut: strings.Join(append([]string{VerdictLine(c)}, exactLines(c)...), "\n"),
		SystemErr: strings.Join(carriedLines(c), "\n")}
	for _, d := range slices.Concat(c.Suspects, c.Allowed) {
		s.Properties = append(s.Properties, junitProperty{plain(d.Role + "." + d.Name), plain(strings.Join(d.Base, " or ") + " -> " + strings.Join(d.Head, " or "))})
	}
	for i := range c.Rows {
		v := &c.Rows[i]
		name := plain(v.Row.String())
		x := junitCase{Class: strings.TrimSuffix(name, "/"+plain(v.Row.Metric)), Name: plain(v.Row.Metric), SystemOut: plain(v.Why)}
		var b strings.Builder
		explainRow(&b, v, "")
		switch v.Verdict {
		case results.Slower:
			if !c.Confirmed {
				x.Skipped = &junitMessage{Message: plain("slower, measured once: " + v.Why + "; " + v.Next)}
				s.Skipped++
				break
			}
			x.Failure = &junitMessage{Message: plain(v.Why), Type: v.Reason, Text: b.String()}
			s.Failures++
		case results.Ambiguous:
			x.Skipped = &junitMessage{Message: plain(v.Why + "; " + v.Next)}
			s.Skipped++
		}
		s.Cases = append(s.Cases, x)
	}
	for _, k := range c.OnlyBase {
		name := plain(k.String())
		s.Cases = append(s.Cases, junitCase{Class: strings.TrimSuffix(name, "/"+plain(k.Metric)), Name: plain(k.Metric),
			Skipped: &junitMessage{Message: "head lacks it"}})
		s.Skipped++
	}
	for _, p := range c.Partial {
		s.Cases = append(s.Cases, junitCase{Class: "missing", Name: plain(p), Skipped: &junitMessage{Message: plain(p)}})
		s.Skipped++
	}
	s.Tests = len(s.Cases)
	b, err := xml.MarshalIndent(junitSuites{Tests: s.Tests, Failures: s.Failures, Suites: []junitSuite{s}}, "", " ")
	if err != nil {
		return fmt.Errorf("encode JUnit: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(b)+"\n")
	return err
}

func exactLines(c *results.Comparison) []string {
	var out []string
	for _, d := range c.Exact {
		out = append(out, exactPlace(d)+": "+plain(d.Base)+" -> "+plain(d.Head))
	}
	return out
}

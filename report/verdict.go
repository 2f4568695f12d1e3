package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Formats of a comparison.
const (
	FormatText  = "text"
	FormatJSON  = "json"
	FormatJUnit = "junit"
)

// VerdictFormats lists what [Verdict] writes, the default first.
func VerdictFormats() []string {
	return []string{FormatText, FormatMarkdown, FormatJSON, FormatJUnit, FormatCSV}
}

// Verdict writes a comparison in one format: what differs between the sides
// first, as suspects, then the verdict and its rows.
func Verdict(w io.Writer, format string, c *results.Comparison) error {
	switch format {
	case FormatText:
		return verdictText(w, c)
	case FormatMarkdown:
		return verdictMarkdown(w, c)
	case FormatJSON:
		return verdictJSON(w, c)
	case FormatJUnit:
		return verdictJUnit(w, c)
	case FormatCSV:
		return verdictCSV(w, c)
	}
	return fmt.Errorf("a comparison has no format %q", format)
}

// verdictSection is a heading with lines or a table below it.
type verdictSection struct {
	title string
	lines []string
	grid  *Grid
}

// VerdictLine is a comparison in a sentence.
func VerdictLine(c *results.Comparison) string {
	counts := map[string]int{}
	for _, v := range c.Rows {
		counts[v.Verdict]++
	}
	var parts []string
	for _, verdict := range verdictOrder() {
		if n := counts[verdict]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verdict))
		}
	}
	line := fmt.Sprintf("%s (%s: %s)", c.Verdict, CountWord(len(c.Rows), "row"), strings.Join(parts, ", "))
	if len(c.Partial) > 0 {
		line += ", and something is missing"
	}
	if counts[results.Slower] > 0 && !c.Confirmed {
		line += "; measured once, so not confirmed"
	}
	return line
}

// VerdictHeadline is a comparison's answer as a sentence for readers of a page.
func VerdictHeadline(c *results.Comparison) string {
	n := 0
	for _, v := range c.Rows {
		if v.Verdict == c.Verdict {
			n++
		}
	}
	rows := fmt.Sprintf("%d of %d rows", n, len(c.Rows))
	switch c.Verdict {
	case results.Slower:
		if c.Confirmed {
			return "Head is slower than base in " + rows + ", confirmed."
		}
		return "Head is slower than base in " + rows + ", measured once."
	case results.Faster:
		return "Head is faster than base in " + rows + ", and slower in none."
	case results.Same:
		return fmt.Sprintf("No difference that matters between base and head in %d rows.", len(c.Rows))
	case results.Ambiguous:
		if n == 0 {
			return "It cannot be told whether head is slower: something is missing."
		}
		return "It cannot be told whether head is slower: " + rows + " are ambiguous."
	}
	return VerdictLine(c)
}

// VerdictSentences say what must be known with the headline of a comparison.
func VerdictSentences(c *results.Comparison) []string {
	counts := map[string]int{}
	var worst *results.RowVerdict
	for i, v := range c.Rows {
		counts[v.Verdict]++
		if v.Verdict == results.Slower && v.Ratio != nil && (worst == nil || worsening(&v) > worsening(worst)) {
			worst = &c.Rows[i]
		}
	}
	var parts []string
	for _, verdict := range verdictOrder() {
		parts = append(parts, fmt.Sprintf("%d %s", counts[verdict], verdict))
	}
	out := []string{upper(strings.Join(parts, ", ")) + "."}
	if worst != nil {
		out = append(out, fmt.Sprintf("Most: %s, %s.", changeOf(*worst.Ratio), plain(worst.Row.String())))
	}
	if worst != nil && !c.Confirmed {
		out = append(out, "Not confirmed: a bad moment of the machine can look the same. A second measurement of both sides can confirm it.")
	}
	if n := len(c.Partial); n > 0 {
		out = append(out, "Something is missing: "+strings.Join(plains(c.Partial[:min(n, 3)]), "; ")+map[bool]string{true: "; and more", false: ""}[n > 3]+".")
	}
	return out
}

// worsening is a row's change for the worse as a factor.
func worsening(v *results.RowVerdict) float64 {
	if v.Direction == results.Higher {
		return 1 / *v.Ratio
	}
	return *v.Ratio
}

// verdictOrder lists verdicts as a reader wants them, the worst first.
func verdictOrder() []string {
	return []string{results.Slower, results.Ambiguous, results.Faster, results.Same}
}

// sectionsOf is a comparison in the order it is read.
func sectionsOf(c *results.Comparison) []verdictSection {
	var out []verdictSection
	add := func(title string, lines []string) {
		if len(lines) > 0 {
			out = append(out, verdictSection{title: title, lines: lines})
		}
	}
	add("Suspects: what differs between base and head", differencesLines(c.Suspects))
	add("Differs, and was allowed to", differencesLines(c.Allowed))
	var records []string
	for _, r := range c.Records {
		line := plain(r.Side) + ": " + plain(r.Name)
		for _, fact := range []string{r.Created, shortRevision(r.Revision)} {
			if fact != "" {
				line += ", " + plain(fact)
			}
		}
		if r.Status != results.Complete {
			line += ", " + plain(r.Status)
		}
		records = append(records, line)
	}
	add("Records", records)
	rows := verdictGrid(c)
	out = append(out, verdictSection{title: "Verdict: " + VerdictLine(c), grid: &rows, lines: intervalNote(c)})
	add("What to do", nextSteps(c))
	add("Exact differences: counted or chosen, not measured", exactLines(c))
	add("Only in base", rowNames(c.OnlyBase))
	add("Only in head", rowNames(c.OnlyHead))
	add("Missing", plains(c.Partial))
	add("Warnings", carriedLines(c))
	return out
}

// Explanation is every number behind a row's verdict, for a renderer outside this
// package.
type Explanation struct {
	// Row and Verdict are the row's name and verdict.
	Row, Verdict string
	Lines        []ExplanationLine
	// Again is what a second measurement of the row found, and BaseAgain what one
	// of base found against its first; empty without one.
	Again, BaseAgain []ExplanationLine
}

// ExplanationLine is a figure with the word for it.
type ExplanationLine struct{ Name, Text string }

// Explanations has the rows of a comparison in the order in which its table has
// them.
func Explanations(c *results.Comparison) []Explanation {
	var out []Explanation
	lines := func(v *results.RowVerdict) (list []ExplanationLine) {
		explainLines(v, func(name, text string) {
			list = append(list, ExplanationLine{strings.TrimSpace(name), text})
		})
		return list
	}
	for _, v := range bySeverity(c.Rows) {
		e := Explanation{Row: plain(v.Row.String()), Verdict: v.Verdict, Lines: lines(&v)}
		if v.Confirmation != nil {
			e.Again = append([]ExplanationLine{{"first", v.First}}, lines(v.Confirmation)...)
		}
		if v.BaseAgain != nil {
			e.BaseAgain = lines(v.BaseAgain)
		}
		out = append(out, e)
	}
	return out
}

// Titles of a comparison's tables that a renderer may look for.
const (
	SectionRows = "Rows on both sides"
	SectionNext = "What to do next"
)

// VerdictSections is a comparison as tables for a renderer outside this package,
// in the order they are read: suspects, the rows, what to do next, what is exact,
// what one side lacks, and doubts. Tables without rows are left out.
func VerdictSections(c *results.Comparison) []Section {
	rows := Section{Title: SectionRows, Grid: verdictGrid(c), Lines: intervalNote(c)}
	missing := wordsGrid("missing", plains(c.Partial))
	lacked := Grid{Header: []string{"row", "only in"}, Left: 2}
	for _, side := range []struct {
		name string
		keys []results.RowKey
	}{{results.BaseSide, c.OnlyBase}, {results.HeadSide, c.OnlyHead}} {
		for _, n := range rowNames(side.keys) {
			lacked.Rows = append(lacked.Rows, []string{n, side.name})
		}
	}
	var out []Section
	for _, s := range []Section{
		{"Suspects: what differs between base and head", differencesGrid(c.Suspects), nil},
		{"Differs, and was allowed to", differencesGrid(c.Allowed), nil},
		rows,
		{SectionNext, wordsGrid("step", nextSteps(c)), nil},
		{"Exact differences: counted or chosen, not measured", exactGrid(c.Exact), nil},
		{"Rows on one side only", lacked, nil},
		{"Missing", missing, nil},
		{"Doubts of the records compared", wordsGrid("warning", carriedLines(c)), nil},
		{"Records compared", comparedGrid(c.Records), nil},
	} {
		if len(s.Grid.Rows) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func wordsGrid(header string, lines []string) Grid {
	g := Grid{Header: []string{header}, Left: 1}
	for _, line := range lines {
		g.Rows = append(g.Rows, []string{line})
	}
	return g
}

func differencesGrid(list []results.FieldDifference) Grid {
	g := Grid{Header: []string{"field", "base", "head"}, Left: 3}
	for _, d := range list {
		g.Rows = append(g.Rows, []string{plain(d.Name), plain(differing(d.Base, d.Why)), plain(differing(d.Head, d.Why))})
	}
	return g
}

func exactGrid(list []results.ExactDifference) Grid {
	g := Grid{Header: []string{"cell", "configuration", "what", "base", "head"}, Left: 5}
	for _, d := range list {
		configuration := "-"
		if d.Configuration != nil {
			configuration = d.Configuration.String()
		}
		g.Rows = append(g.Rows, plains([]string{
			d.Cell.Name(), configuration, d.What, d.Base, d.Head,
		}))
	}
	return g
}

func comparedGrid(list []results.Compared) Grid {
	g := Grid{Header: []string{"side", "record", "created", "revision", "status"}, Left: 5}
	for _, r := range list {
		g.Rows = append(g.Rows, plains([]string{r.Side, r.Name, orDash(r.Created), orDash(r.Revision[:min(12, len(r.Revision))]), r.Status}))
	}
	return g
}

func plains(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, plain(s))
	}
	return out
}

func shortRevision(r string) string {
	if r == "" {
		return ""
	}
	return "revision " + r[:min(12, len(r))]
}

// differing are the values of a side, in words.
func differing(values []string, why string) string {
	var words []string
	for _, v := range values {
		if v == "" {
			v = "not known"
			if why != "" {
				v += " (" + why + ")"
			}
		}
		words = append(words, v)
	}
	return strings.Join(words, " or ")
}

func differencesLines(list []results.FieldDifference) []string {
	var out []string
	for _, d := range list {
		out = append(out, plain(fmt.Sprintf("%s: %s -> %s", d.Name, differing(d.Base, d.Why), differing(d.Head, d.Why))))
	}
	return out
}

func exactPlace(d results.ExactDifference) string {
	at := d.Cell.Name()
	if d.Configuration != nil {
		at += " " + d.Configuration.String()
	}
	return plain(at + ", " + d.What)
}

func rowNames(keys []results.RowKey) []string {
	var out []string
	for _, k := range keys {
		out = append(out, plain(k.String()))
	}
	return out
}

// bySeverity orders rows as a reader wants them: slower first, the same last.
func bySeverity(rows []results.RowVerdict) []results.RowVerdict {
	rank := func(v results.RowVerdict) int { return slices.Index(verdictOrder(), v.Verdict) }
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b results.RowVerdict) int { return rank(a) - rank(b) })
	return out
}

func verdictGrid(c *results.Comparison) Grid {
	g := Grid{
		Header: []string{"verdict", "row", "base", "head", "change", "interval", "p", "threshold", "processes", "reason"},
		Left:   2, LeftEnd: 1,
	}
	for _, v := range bySeverity(c.Rows) {
		reason := v.Reason
		if v.Confirmation != nil && v.Confirmation.Ratio != nil {
			reason += ", again " + changeOf(*v.Confirmation.Ratio)
		}
		g.Rows = append(g.Rows, []string{
			v.Verdict, plain(v.Row.String()), figureIn(v.Base.Median, v.Unit), figureIn(v.Head.Median, v.Unit),
			orNone(v.Ratio, changeOf), intervalIn(v.Interval), orNone(v.AdjustedP, probability), percent(v.Threshold),
			fmt.Sprintf("%d:%d", v.Base.Processes, v.Head.Processes), reason,
		})
	}
	return g
}

func figureIn(v *float64, unit string) string {
	if unit == "ns" {
		return orNone(v, Duration)
	}
	return orNone(v, digits)
}

func orNone(v *float64, show func(float64) string) string {
	if v == nil {
		return "-"
	}
	return show(*v)
}

// ChangeOf is a ratio as a change in per cent, with sign.
func ChangeOf(ratio float64) string { return changeOf(ratio) }

// Figure shows a value of a row with three significant digits; nanoseconds get
// the unit that fits.
func Figure(v float64, unit string) string { return figureIn(&v, unit) }

// changeOf is a ratio as a change in per cent, with sign.
func changeOf(ratio float64) string {
	switch p := 100 * (ratio - 1); {
	case p >= 999.5:
		return fmt.Sprintf("x%.3g", ratio)
	case p >= 99.5 || p <= -99.5:
		return fmt.Sprintf("%+.0f%%", p)
	default:
		return fmt.Sprintf("%+.2f%%", p)
	}
}

func intervalIn(i *results.Interval) string {
	if i == nil || i.Coverage <= 0 {
		return "-"
	}
	return changeOf(i.Low) + " to " + changeOf(i.High)
}

func probability(p float64) string {
	if p < 0.0001 {
		return fmt.Sprintf("%.0e", p)
	}
	return fmt.Sprintf("%.2g", p)
}

// intervalNote says what stands in the columns that need words.
func intervalNote(c *results.Comparison) []string {
	lines := []string{"p is Mann and Whitney's of the processes' medians after Holm's correction over all rows; threshold is the least change that counts."}
	var kinds []string
	for _, v := range c.Rows {
		if v.Interval == nil || v.Interval.Coverage <= 0 {
			continue
		}
		if k := fmt.Sprintf("covers %s at %d:%d processes", percent(v.Interval.Coverage), v.Base.Processes, v.Head.Processes); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) > 0 {
		lines = append(lines, "interval is of the change of each row alone, over processes ("+strings.Join(kinds, "; ")+").")
	}
	return lines
}

// NextSteps lists what a comparison's rows ask for, each step once, those of the
// worst rows first.
func NextSteps(c *results.Comparison) []string { return nextSteps(c) }

// nextSteps lists what rows ask for, each step once.
func nextSteps(c *results.Comparison) []string {
	var steps []string
	count := map[string]int{}
	for _, v := range bySeverity(c.Rows) {
		if v.Next == "" {
			continue
		}
		if count[v.Next]++; count[v.Next] == 1 {
			steps = append(steps, v.Next)
		}
	}
	for i, s := range steps {
		if n := count[s]; n > 1 {
			steps[i] = fmt.Sprintf("%s (%d rows)", s, n)
		}
	}
	return plains(steps)
}

// carriedLines folds the records' doubts of a kind into one line.
func carriedLines(c *results.Comparison) []string {
	var own, run, cells, last folded
	for _, w := range c.Warnings {
		at := plain(w.Record)
		switch {
		case w.Record == "":
			own.add(w.Warning, "", "")
		case w.Cell != nil:
			cells.add(w.Warning, fmt.Sprintf("%s: %s batch\x00 gpus %d", at, plain(w.Cell.Workload), w.Cell.GPUs), fmt.Sprint(w.Cell.Batch))
		case slices.Contains(lasting, w.Warning.Code):
			last.add(w.Warning, at, "")
		default:
			run.add(w.Warning, at, "")
		}
	}
	var lines []string
	for _, d := range slices.Concat(own.doubts(), run.doubts(), cells.doubts(), last.doubts()) {
		lines = append(lines, d.line())
	}
	return lines
}

func verdictText(w io.Writer, c *results.Comparison) error {
	for i, s := range sectionsOf(c) {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, s.title); err != nil {
			return err
		}
		indent := "  "
		if s.grid != nil {
			indent = ""
			if err := s.grid.Write(w); err != nil {
				return err
			}
		}
		for _, line := range s.lines {
			if _, err := fmt.Fprintln(w, indent+line); err != nil {
				return err
			}
		}
	}
	return nil
}

func verdictMarkdown(w io.Writer, c *results.Comparison) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# trbench compare: %s\n", markdownText(c.Verdict))
	for _, s := range sectionsOf(c) {
		fmt.Fprintf(&b, "\n## %s\n\n", markdownText(s.title))
		if s.grid != nil {
			s.grid.markdown(&b)
			b.WriteString("\n")
			for _, line := range s.lines {
				fmt.Fprintf(&b, "%s  \n", markdownText(line))
			}
			continue
		}
		for _, line := range s.lines {
			fmt.Fprintf(&b, "- %s\n", markdownText(line))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Explain writes every number behind rows' verdicts.
func Explain(w io.Writer, rows []results.RowVerdict) error {
	var b strings.Builder
	for i := range rows {
		if i > 0 {
			b.WriteString("\n")
		}
		explainRow(&b, &rows[i], "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func explainRow(b *strings.Builder, v *results.RowVerdict, indent string) {
	fmt.Fprintf(b, "%s%s\n", indent, plain(v.Row.String()))
	indent += "  "
	explainLines(v, func(name, text string) { fmt.Fprintf(b, "%s%-14s %s\n", indent, name, text) })
	if v.Confirmation != nil {
		fmt.Fprintf(b, "%sfirst measurement: %s; the second:\n", indent, v.First)
		explainRow(b, v.Confirmation, indent)
	}
	if v.BaseAgain != nil {
		fmt.Fprintf(b, "%sbase's second measurement, as head, against its first:\n", indent)
		explainRow(b, v.BaseAgain, indent)
	}
}

// explainLines hands out the figures behind a verdict, a name and a text each; a
// second measurement's are its own.
func explainLines(v *results.RowVerdict, put func(name, text string)) {
	line := func(name, format string, args ...any) { put(name, plain(fmt.Sprintf(format, args...))) }
	line("verdict", "%s (%s)", v.Verdict, v.Reason)
	line("why", "%s", v.Why)
	if v.Verdict != results.Slower {
		line("no alert", "%s", noAlert(v))
	}
	if v.Next != "" {
		line("next", "%s", v.Next)
	}
	explainSide(line, "base", v.Base, v.Unit)
	explainSide(line, "head", v.Head, v.Unit)
	if v.Ratio != nil {
		line("effect", "head / base %s, %s", fiveDigits(*v.Ratio), changeOf(*v.Ratio))
	}
	switch i := v.Interval; {
	case i == nil:
	case i.Coverage <= 0:
		line("interval", "none: so few processes give none")
	default:
		line("interval", "%s, %s, covers %s of the asked %s", intervalIn(i), i.Method, percent(i.Coverage), percent(i.Level))
	}
	switch {
	case v.Noise == nil:
		line("noise", "not known: no side has 3 runs")
	case v.NoiseRuns == 0:
		line("noise", "%s of a run's median, as handed in", percent(*v.Noise))
	default:
		line("noise", "%s of a run's median, from %d runs", percent(*v.Noise), v.NoiseRuns)
	}
	line("threshold", "slower from a ratio of %s, faster to %s", fiveDigits(1+v.Threshold), fiveDigits(1/(1+v.Threshold)))
	if v.P != nil {
		line("U", "%s of %d pairs have head above base", fiveDigits(*v.U), v.Base.Processes*v.Head.Processes)
		line("p", "%s, two-sided; %s after Holm over %d rows; at most %s counts", fiveDigits(*v.P), fiveDigits(*v.AdjustedP), v.Family, fiveDigits(v.Alpha))
		line("least p", "%s with %s against %d; one of %d rows needs %s", fiveDigits(*v.FloorP), counted(v.Base.Processes, "process", "processes"), v.Head.Processes, v.Family,
			fiveDigits(v.Alpha/float64(max(v.Family, 1))))
	}
	line("needs", "%d processes of base and %d of head for one of %d rows", v.NeedBase, v.NeedHead, v.Family)
}

// fiveDigits is enough digits to check a figure by hand; JSON and CSV have all.
func fiveDigits(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// noAlert is the reject reason: the first condition of an alert that fails.
func noAlert(v *results.RowVerdict) string {
	switch v.Reason {
	case results.NoEvidence, results.BelowThreshold:
		return "the effect does not reach the threshold"
	case results.NotSignificant:
		return "the effect reaches the threshold, but the test does not exclude chance"
	case results.TooNoisy:
		return "the effect does not reach the threshold; a larger one could hide in the noise"
	case results.TooFewProcesses:
		return "with so few processes no outcome could be significant"
	case results.NotRepeated:
		return "the second measurement did not repeat it"
	case results.NotConfirmed:
		return "the second measurement cannot tell, or lacks the row"
	case results.BaseNotMeasured:
		return "the second measurement found it again, without base beside it"
	case results.BaseSlowerToo:
		return "measured again, base is slower as well, so that it is not the program"
	case results.Significant:
		return "it is " + v.Verdict
	}
	return "there is nothing to test"
}

func explainSide(line func(name, format string, args ...any), name string, s results.RowSide, unit string) {
	if s.Median == nil {
		line(name, "%s, no median", counted(s.Processes, "process", "processes"))
		return
	}
	of := "the median of 1 run"
	if n := len(s.Runs); n != 1 {
		of = fmt.Sprintf("the median of %d runs' medians", n)
	}
	line(name, "%s, %s, %s", figureIn(s.Median, unit), of, counted(s.Processes, "process", "processes"))
	for i, r := range s.Runs {
		var words []string
		for _, v := range r {
			words = append(words, strconv.FormatFloat(v, 'f', -1, 64))
		}
		line(fmt.Sprintf("  run %d, %s", i+1, unit), "%s", strings.Join(words, " "))
	}
}

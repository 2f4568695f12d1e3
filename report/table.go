package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Table writes a record's cells and configurations, one a line, then ratios
// and headlines, then what must be read with them: the evidence, the
// warnings, failures, and, for a record of a CPU, why it has no headline.
func Table(w io.Writer, r *results.Record) error {
	return single(r).table(w)
}

// Tables writes several records as one, with columns for what differs between
// them: revision, driver, machine, file.
func Tables(w io.Writer, records []Named) error {
	return gather(records).table(w)
}

func (s sources) table(w io.Writer) error { return writeSections(w, s.sections(), false) }

// writeSections writes tables below each other. What the first one is may be
// plain without its title.
func writeSections(w io.Writer, sections []Section, titled bool) error {
	for i, t := range sections {
		head := t.Title + "\n"
		switch {
		case i > 0:
			head = "\n" + head
		case !titled:
			head = ""
		}
		if _, err := io.WriteString(w, head); err != nil {
			return err
		}
		if err := t.Grid.Write(w); err != nil {
			return err
		}
		for _, line := range t.Lines {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// Section is a table with a title and the lines to be read with it.
type Section struct {
	Title string
	Grid  Grid
	Lines []string
}

// column is one property of a cell.
type column struct {
	name string
	// always shows the column even if all cells agree
	always bool
	text   func(results.CellKey) string
	// telling, if set, shows it as well for a cell that readers would take for
	// another
	telling func(results.CellKey) bool
	// within, if set, compares a cell with those of the same word alone: what
	// follows from that tells nothing.
	within func(results.CellKey) string
}

// tells says whether a column has different words for two cells that it is to
// tell apart.
func (c column) tells(a, b results.CellKey) bool {
	return c.text(a) != c.text(b) && (c.within == nil || c.within(a) == c.within(b))
}

// ofLastBatch says that the timed step is an epoch's or a validation's last.
func ofLastBatch(k results.CellKey) bool { return k.Variant%2 == 1 }

// lastBatch is the images a rank has in the timed step, where those are not
// the batch.
func lastBatch(k results.CellKey) string {
	switch {
	case !ofLastBatch(k):
		return "-"
	case k.Variant == 5:
		return strconv.Itoa(k.LastBatch.Val)
	}
	return strconv.Itoa(k.LastBatch.Train)
}

func columns() []column {
	number := func(f func(results.CellKey) int) func(results.CellKey) string {
		return func(k results.CellKey) string { return strconv.Itoa(f(k)) }
	}
	return []column{
		{"workload", true, func(k results.CellKey) string { return plain(k.Workload) }, nil, nil},
		{"batch", true, number(func(k results.CellKey) int { return k.Batch }), nil, nil},
		{"gpus", true, number(func(k results.CellKey) int { return k.GPUs }), nil, nil},
		{"precision", false, func(k results.CellKey) string { return plain(k.Precision) }, nil, nil},
		{"optimizer", false, func(k results.CellKey) string { return plain(k.Optimizer) }, nil, nil},
		{"ema", false, func(k results.CellKey) string { return strconv.FormatBool(k.EMA) }, nil, nil},
		{"smoothing", false, func(k results.CellKey) string { return strconv.FormatFloat(k.Smoothing, 'g', -1, 64) }, nil, nil},
		{"frozen", false, func(k results.CellKey) string { return strconv.FormatBool(k.Frozen) }, nil, nil},
		{"resolution", false, func(k results.CellKey) string { return fmt.Sprintf("%d,%d", k.Resolution.Begin, k.Resolution.Final) }, nil,
			func(k results.CellKey) string { return k.Workload }},
		{"variant", false, number(func(k results.CellKey) int { return k.Variant }),
			func(k results.CellKey) bool { return k.Variant != results.DefaultCellKey().Variant }, nil},
		{"last batch", false, lastBatch, ofLastBatch, nil},
		{"device", false, func(k results.CellKey) string { return plain(k.Device) }, nil, nil},
		{"kernels", false, func(k results.CellKey) string { return plain(k.Kernels) }, nil, nil},
	}
}

// option is one property of a configuration that few runs vary.
type option struct {
	name string
	text func(results.ConfigurationKey) string
}

func options() []option {
	return []option{
		{"launcher", func(k results.ConfigurationKey) string { return plain(k.Launcher) }},
		{"ranks", func(k results.ConfigurationKey) string { return plain(k.Ranks) }},
		{"dispatch", func(k results.ConfigurationKey) string { return Duration(float64(k.DispatchNs)) }},
	}
}

// cellColumns leaves out columns in which all cells agree, unless they tell
// something that no reader would guess.
func (s sources) cellColumns() []column {
	return slices.DeleteFunc(columns(), func(c column) bool {
		if c.always {
			return false
		}
		var met []results.CellKey // one of each kind
		for cell := range s.cells {
			if c.telling != nil && c.telling(cell.Key) || slices.ContainsFunc(met, func(k results.CellKey) bool { return c.tells(k, cell.Key) }) {
				return false
			}
			if !slices.ContainsFunc(met, func(k results.CellKey) bool {
				return c.text(k) == c.text(cell.Key) && (c.within == nil || c.within(k) == c.within(cell.Key))
			}) {
				met = append(met, cell.Key)
			}
		}
		return true
	})
}

// confOptions leaves out options in which all configurations agree.
func (s sources) confOptions() []option {
	rows := s.rows()
	return slices.DeleteFunc(options(), func(o option) bool {
		return !slices.ContainsFunc(rows, func(r row) bool {
			return o.text(r.conf.Key) != o.text(rows[0].conf.Key)
		})
	})
}

// cells yields every cell with its source.
func (s sources) cells(yield func(*results.Cell, *source) bool) {
	for _, src := range s.list {
		for i := range src.record.Cells {
			if !yield(&src.record.Cells[i], src) {
				return
			}
		}
	}
}

// timed are the metrics of the terminal table; the long forms have all. What
// only some devices can measure has a column where some configuration has it.
func (s sources) timed() []struct{ name, header string } {
	out := []struct{ name, header string }{
		{results.StepTimeNs, "step"}, {results.SubmitTimeNs, "submit"},
		{results.SyncWaitNs, "sync wait"}, {results.HostTimeNs, "host"},
	}
	if slices.ContainsFunc(s.rows(), func(r row) bool { return r.conf.Metric(results.LaunchOverheadNs) != nil }) {
		out = append(out, struct{ name, header string }{results.LaunchOverheadNs, "launch overhead"})
	}
	return out
}

// keys begins a grid with the columns that say which configuration a row is of,
// and returns what fills them. A cell without configurations has none to name.
func (s sources) keys() (Grid, func(*source, *results.Cell, *results.Configuration) []string) {
	opts := s.confOptions()
	g, cols := s.comparison("mode", "sync", "control")
	for _, o := range opts {
		g.Header = append(g.Header, o.name)
	}
	g.Left = len(g.Header)
	return g, func(src *source, cell *results.Cell, conf *results.Configuration) []string {
		line := keys(src, cell, cols)
		if conf == nil {
			return append(line, slices.Repeat([]string{"-"}, 3+len(opts))...)
		}
		line = append(line, plain(conf.Key.Mode), plain(conf.Key.Sync), plain(conf.Key.Control))
		for _, o := range opts {
			line = append(line, o.text(conf.Key))
		}
		return line
	}
}

// figures is one line a configuration. Columns appear when a record has what
// they show, so that a small run stays a small table.
func (s sources) figures() Grid {
	rows, timed := s.rows(), s.timed()
	withInterval := map[string]bool{}
	for _, r := range rows {
		for _, m := range timed {
			f, ok := figureOf(r.conf, m.name)
			withInterval[m.name] = withInterval[m.name] || ok && f.interval != nil
		}
	}
	var replicated, broken bool
	for c := range s.cells {
		replicated = replicated || len(c.Processes) > 0
		broken = broken || failed(c)
	}

	g, keys := s.keys()
	for _, m := range timed {
		if g.Header = append(g.Header, m.header); withInterval[m.name] {
			g.Header = append(g.Header, "+-")
		}
	}
	g.Header = append(g.Header, "images/s", "launches")
	if replicated {
		g.Header = append(g.Header, "processes")
	}
	if broken {
		g.Header, g.LeftEnd = append(g.Header, "status"), 1
	}

	add := func(src *source, cell *results.Cell, conf *results.Configuration) {
		line := keys(src, cell, conf)
		if conf == nil {
			conf = &results.Configuration{}
		}
		for _, m := range timed {
			f, ok := figureOf(conf, m.name)
			text := "-"
			if ok {
				text = Duration(f.value)
			}
			if line = append(line, text); withInterval[m.name] {
				line = append(line, f.plusMinus())
			}
		}
		rate := "-"
		if f, ok := figureOf(conf, results.ImagesPerS); ok {
			rate = digits(f.value)
		}
		line = append(line, rate, count(conf.Counts.Launches.Host))
		if replicated {
			line = append(line, replicates(cell))
		}
		if broken {
			line = append(line, status(cell))
		}
		g.Rows = append(g.Rows, line)
	}
	for cell, src := range s.cells {
		for j := range cell.Configurations {
			add(src, cell, &cell.Configurations[j])
		}
		if len(cell.Configurations) == 0 && failed(cell) {
			add(src, cell, nil)
		}
	}
	return g
}

func replicates(c *results.Cell) string {
	switch done, all := processes(c); {
	case all == 0:
		return "-"
	case done == all:
		return strconv.Itoa(all)
	default:
		return fmt.Sprintf("%d of %d", done, all)
	}
}

func status(c *results.Cell) string {
	if failed(c) {
		return results.Failed
	}
	return results.Done
}

func count(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

// intervalLine says what stands in the +- columns.
func (s sources) intervalLine() []string {
	var kinds []string
	for _, r := range s.rows() {
		for _, m := range s.timed() {
			f, ok := figureOf(r.conf, m.name)
			if !ok || f.interval == nil {
				continue
			}
			if k := fmt.Sprintf("%s at %d processes", describe(f.interval), f.processes); !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return []string{"+- is the larger half of the median's interval (" + strings.Join(kinds, "; ") + ")."}
}

// evidence says what was compared before anything was timed.
func (s sources) evidence() []string {
	var cells int
	var compared, repeated proof
	var alone, unequal []string
	for c, src := range s.cells {
		cells++
		switch {
		case c.Verify.Equal && len(c.Verify.Modes) == 1:
			alone = append(alone, s.place(src, c))
		case c.Verify.Equal && distinct(c.Verify.Modes) == 1:
			repeated.add(c.Verify)
		case c.Verify.Equal:
			compared.add(c.Verify)
		case failed(c) && len(c.Configurations) == 0:
			// It did not come so far; its failure says why.
		default:
			unequal = append(unequal, s.place(src, c))
		}
	}
	switch {
	case len(s.list) > 1 && cells == 0:
		return []string{"The records have no cells."}
	case cells == 0:
		return []string{"The record has no cells."}
	case len(unequal) == 1 && cells == 1:
		return []string{"The modes of a cell were not found equal: its figures mean nothing."}
	case len(unequal) > 0:
		return []string{"The modes of a cell were not found equal: its figures mean nothing (" + strings.Join(unequal, "; ") + ")."}
	}
	var lines []string
	if compared.cells > 0 {
		lines = append(lines, "Before timing, all modes of each cell left the same bits: "+compared.amount())
	}
	if repeated.cells > 0 {
		lines = append(lines, "Before timing, "+plain(repeated.only)+" repeated itself bit for bit; there was no other mode to compare it with: "+repeated.amount())
	}
	if len(alone) > 0 {
		lines = append(lines, "One mode alone was run, and compared with nothing ("+strings.Join(alone, "; ")+").")
	}
	return lines
}

// proof sums up what checks covered.
type proof struct {
	cells, tensors, steps int
	bytes                 int64
	only                  string
}

func (p *proof) add(v results.Verify) {
	p.cells++
	p.tensors, p.bytes, p.steps = max(p.tensors, v.Tensors), max(p.bytes, v.Bytes), max(p.steps, v.Steps)
	if len(v.Modes) > 0 {
		p.only = v.Modes[0]
	}
}

func (p proof) amount() string {
	return fmt.Sprintf("up to %d tensors, %s, after %d steps.", p.tensors, Bytes(p.bytes), p.steps)
}

func distinct(words []string) int {
	seen := map[string]bool{}
	for _, w := range words {
		seen[w] = true
	}
	return len(seen)
}

// place names a cell in a sentence.
func (s sources) place(src *source, c *results.Cell) string {
	p := fmt.Sprintf("%s batch %d gpus %d", plain(c.Key.Workload), c.Key.Batch, c.Key.GPUs)
	if len(s.list) > 1 {
		p = src.name + ": " + p
	}
	return p
}

// maxFailureLines is how much of a worker's stderr a table repeats, from its
// end, where the cause stands.
const maxFailureLines = 6

func (s sources) failures() []string {
	var lines []string
	say := func(head, text string) {
		var tail []string
		for l := range strings.Lines(text) {
			if l = plain(l); l != "" {
				tail = append(tail, l)
			}
		}
		switch {
		case len(tail) == 0:
			lines = append(lines, head+": no reason is recorded")
		case len(tail) == 1:
			lines = append(lines, head+": "+tail[0])
		default:
			lines = append(lines, head+":")
			if len(tail) > maxFailureLines {
				tail = append([]string{"..."}, tail[len(tail)-maxFailureLines:]...)
			}
			for _, l := range tail {
				lines = append(lines, "  "+l)
			}
		}
	}
	for c, src := range s.cells {
		if failed(c) {
			say(fmt.Sprintf("Failed (%s)", s.place(src, c)), c.Failure)
		}
		for _, p := range c.Processes {
			// The cell's own reason is as a rule the last process's.
			if p.Status == results.Failed && (!failed(c) || plain(p.Failure) != plain(c.Failure)) {
				say(fmt.Sprintf("Failed process %d (%s)", p.Index, s.place(src, c)), p.Failure)
			}
		}
	}
	return lines
}

// lasting are doubts about what a machine is rather than about what happened
// in the run: they say the same of each run, so they come last.
var lasting = []string{"virtual_machine", "boost"}

// warnings is a line a kind of doubt: of the run as a whole, then of cells,
// with the cells it is about. The first text stands for others of its kind;
// the record has all.
func (s sources) warnings() []string {
	var lines []string
	for _, w := range s.doubts() {
		lines = append(lines, w.line())
	}
	return lines
}

// doubts are the kinds of warnings in the order they are printed.
func (s sources) doubts() []Doubt {
	var run, cells, last folded
	for _, src := range s.list {
		at := ""
		if len(s.list) > 1 {
			at = src.name
		}
		for _, w := range src.record.Warnings {
			if slices.Contains(lasting, w.Code) {
				last.add(w, at, "")
			} else {
				run.add(w, at, "")
			}
		}
	}
	for c, src := range s.cells {
		// A cell's place but for its batch, which most runs vary.
		at := fmt.Sprintf("%s batch\x00 gpus %d", plain(c.Key.Workload), c.Key.GPUs)
		if len(s.list) > 1 {
			at = src.name + ": " + at
		}
		for _, w := range c.Warnings {
			cells.add(w, at, strconv.Itoa(c.Key.Batch))
		}
	}
	return slices.Concat(run.doubts(), cells.doubts(), last.doubts())
}

// Doubt is a kind of warning, with all that records say of it.
type Doubt struct {
	Code string
	// Texts are what the records say, each once.
	Texts []string
	// At are the cells, or of several records those, that it is about; none
	// for a doubt about a single record as a whole.
	At []string
}

// line is a doubt in a line: its first text stands for all.
func (d Doubt) line() string {
	line := "Warning"
	if len(d.At) > 0 {
		line += " (" + strings.Join(d.At, "; ") + ")"
	}
	line += ": " + d.Texts[0]
	if n := len(d.Texts) - 1; n > 0 {
		line += fmt.Sprintf(" (and %d more like it in the record)", n)
	}
	return fmt.Sprintf("%s [%s]", line, d.Code)
}

// folded gathers doubts by their kind.
type folded struct{ kinds []*doubtKind }

type doubtKind struct {
	code  string
	texts []string
	at    []string            // records, or cells with a NUL for their batch
	batch map[string][]string // by element of at
}

func (f *folded) add(w results.Warning, at, batch string) {
	i := slices.IndexFunc(f.kinds, func(k *doubtKind) bool { return k.code == w.Code })
	if i < 0 {
		i = len(f.kinds)
		f.kinds = append(f.kinds, &doubtKind{code: w.Code, batch: map[string][]string{}})
	}
	k := f.kinds[i]
	if text := plain(w.Text); !slices.Contains(k.texts, text) {
		k.texts = append(k.texts, text)
	}
	if !slices.Contains(k.at, at) && at != "" {
		k.at = append(k.at, at)
	}
	if batch != "" && !slices.Contains(k.batch[at], batch) {
		k.batch[at] = append(k.batch[at], batch)
	}
}

func (f *folded) doubts() []Doubt {
	var out []Doubt
	for _, k := range f.kinds {
		var at []string
		for _, a := range k.at {
			before, after, _ := strings.Cut(a, "\x00")
			if b := k.batch[a]; len(b) > 0 {
				before += " " + strings.Join(b, ", ")
			}
			at = append(at, before+after)
		}
		out = append(out, Doubt{Code: plain(k.code), Texts: k.texts, At: at})
	}
	return out
}

// notes says what the figures cannot carry.
func (s sources) notes() []string {
	for c := range s.cells {
		if onCPU(c) {
			return strings.Split(strings.TrimSpace(`
A CPU record shows the method, not the gain: here a launch costs next to nothing and the arithmetic nearly all.
For real figures use --device=cuda on a machine with an NVIDIA GPU.`), "\n")
		}
	}
	return nil
}

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// maxPlanRows bounds the table of plans: a sweep of models has thousands.
const maxPlanRows = 1000

// details are what a reader asks for who doubts a figure: what was compared,
// the machine, what it takes for known small things, what libraries chose, and
// how the run was made. Sections without rows are left out.
func (s sources) details() []Section {
	var out []Section
	for _, t := range []Section{
		s.environment(results.Subject, "Environment: subject", "What a comparison of records is about."),
		s.environment(results.Bed, "Environment: bed", "What must be the same on both sides of a comparison."),
		s.readings("Calibration", "What this machine takes for known small things.", func(e results.Environment) []results.Reading { return e.Calibration }),
		s.readings("Readings", "What changes from minute to minute, as the run found it.", func(e results.Environment) []results.Reading { return e.Readings }),
		s.moments(), s.underLoad(),
		s.verification(), s.prepared(), s.graphs(), s.preparation(), s.tuning(), s.plans(), s.replication(), s.phases(), s.runs(),
	} {
		if len(t.Grid.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// perRecord begins a table with a column a record.
func (s sources) perRecord(first ...string) Grid {
	g := Grid{Header: first}
	if len(s.list) == 1 {
		g.Header = append(g.Header, "value")
	} else {
		for _, src := range s.list {
			g.Header = append(g.Header, src.name)
		}
	}
	g.Left = len(g.Header)
	return g
}

// environment lists the fields of a role, one a line, and what differs between
// records. Roles that are neither count as bed, as factsOf has it.
func (s sources) environment(role, title, about string) Section {
	g := s.perRecord("field")
	if len(s.list) > 1 {
		g.Header = append(g.Header, "differs")
		g.Left++
	}
	values := map[string][]string{}
	var names []string
	for i, src := range s.list {
		r := src.record
		put := func(name, value string) {
			name = plain(name)
			if values[name] == nil {
				names, values[name] = append(names, name), make([]string, len(s.list))
			}
			values[name][i] = plain(value)
		}
		if role == results.Subject {
			put("revision", src.fact("revision"))
			put("version", r.Program.Version)
		} else {
			put("device", r.Device.Description)
			put("os", strings.Trim(r.Host.OS+"/"+r.Host.Arch, "/"))
			put("cpus", strconv.Itoa(r.Host.CPUs))
			put("go", r.Program.Go)
		}
		for _, f := range r.Environment.Fields {
			if (f.Role == results.Subject) != (role == results.Subject) {
				continue
			}
			value := f.Value
			if value == "" {
				if value = "unknown"; f.Why != "" {
					value += ": " + f.Why
				}
			}
			put(f.Name, value)
		}
	}
	for _, n := range names {
		line := []string{n}
		differ := false
		for _, v := range values[n] {
			line, differ = append(line, orDash(v)), differ || v != values[n][0]
		}
		if len(s.list) > 1 {
			line = append(line, map[bool]string{true: "differs", false: ""}[differ])
		}
		g.Rows = append(g.Rows, line)
	}
	return Section{title, g, []string{about}}
}

func (s sources) readings(title, about string, of func(results.Environment) []results.Reading) Section {
	g := s.perRecord("reading")
	g.Left = 1
	if len(s.list) == 1 {
		g.Header = append(g.Header, "observations")
	}
	var names []string
	values := map[string][]string{}
	for i, src := range s.list {
		for _, r := range of(src.record.Environment) {
			name := plain(r.Name)
			if values[name] == nil {
				names, values[name] = append(names, name), slices.Repeat([]string{"-"}, len(s.list))
			}
			values[name][i] = quantity(r)
			if len(s.list) == 1 {
				values[name] = append(values[name][:1], strconv.Itoa(r.N))
			}
		}
	}
	for _, n := range names {
		g.Rows = append(g.Rows, append([]string{n}, values[n]...))
	}
	return Section{title, g, []string{about}}
}

// moments are the machine at the start and the end of each session, side by
// side.
func (s sources) moments() Section {
	g := Grid{Header: []string{"reading"}, Left: 1}
	rows := map[string]int{}
	for _, src := range s.list {
		for _, m := range src.record.Environment.Moments {
			head := plain(m.When)
			if m.Session > 0 {
				head = fmt.Sprintf("session %d %s", m.Session+1, head)
			}
			if !m.Time.IsZero() {
				head += " " + m.Time.UTC().Format("15:04:05")
			}
			if len(s.list) > 1 {
				head = src.name + " " + head
			}
			g.Header = append(g.Header, head)
			for i := range g.Rows {
				g.Rows[i] = append(g.Rows[i], "-")
			}
			for _, r := range m.Readings {
				name := plain(r.Name)
				if _, ok := rows[name]; !ok {
					rows[name] = len(g.Rows)
					g.Rows = append(g.Rows, append([]string{name}, slices.Repeat([]string{"-"}, len(g.Header)-1)...))
				}
				row := g.Rows[rows[name]]
				row[len(row)-1] = quantity(r)
			}
		}
	}
	return Section{"Machine over the run", g, []string{"Nothing of the run was at work then. Times are UTC."}}
}

// underLoad is what each process read while it worked, a column a reading.
func (s sources) underLoad() Section {
	g, cols := s.comparison("process")
	g.Left = len(g.Header)
	column := map[string]int{}
	for cell, src := range s.cells {
		for _, p := range cell.Processes {
			if len(p.Readings) == 0 {
				continue
			}
			line := append(keys(src, cell, cols), strconv.Itoa(p.Index))
			line = append(line, slices.Repeat([]string{"-"}, len(g.Header)-len(line))...)
			for _, r := range p.Readings {
				name := plain(r.Name)
				at, ok := column[name]
				if !ok {
					at = len(g.Header)
					column[name], g.Header = at, append(g.Header, name)
					for i := range g.Rows {
						g.Rows[i] = append(g.Rows[i], "-")
					}
					line = append(line, "-")
				}
				line[at] = quantity(r)
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return Section{"Machine under load", g, []string{"Read in each process while more steps of its last configuration ran, after all that was timed."}}
}

// quantity is a reading with its unit, times scaled as everywhere.
func quantity(r results.Reading) string {
	switch unit := plain(r.Unit); {
	case unit == "ns":
		return Duration(r.Value)
	case unit == "bytes" || unit == "B":
		return Bytes(int64(r.Value))
	case unit == "":
		return fine(r.Value)
	default:
		return fine(r.Value) + " " + unit
	}
}

// cellTable begins a table with a line a cell.
func (s sources) cellTable(more ...string) (Grid, []column) {
	g, cols := s.comparison(more...)
	g.Left = len(g.Header) - len(more)
	return g, cols
}

func (s sources) verification() Section {
	g, cols := s.cellTable("tensors", "bytes", "steps", "equal", "compared")
	g.LeftEnd = 2
	for cell, src := range s.cells {
		v := cell.Verify
		modes := make([]string, len(v.Modes))
		for i, m := range v.Modes {
			modes[i] = plain(m)
		}
		g.Rows = append(g.Rows, append(keys(src, cell, cols), strconv.Itoa(v.Tensors), Bytes(v.Bytes), strconv.Itoa(v.Steps),
			map[bool]string{true: "equal", false: "not equal"}[v.Equal], strings.Join(modes, ", ")))
	}
	return Section{"Verification", g, []string{"Before anything is timed, all configurations train from one snapshot, and all state must be equal bit for bit. Tensors are of one rank, bytes over all ranks."}}
}

func (s sources) prepared() Section {
	g, cols := s.cellTable("arena", "pinned", "slots", "captured", "reused", "table entries", "table")
	for cell, src := range s.cells {
		if cell.Memory == (results.Memory{}) && cell.Atlas == (results.Atlas{}) {
			continue
		}
		g.Rows = append(g.Rows, append(keys(src, cell, cols), Bytes(cell.Memory.ArenaBytes), Bytes(cell.Memory.PinnedBytes),
			strconv.Itoa(cell.Atlas.Filled), strconv.Itoa(cell.Atlas.Captured), strconv.Itoa(cell.Atlas.Reused),
			strconv.Itoa(cell.ExecutionTable.Entries), Bytes(cell.ExecutionTable.Bytes)))
	}
	return Section{"Memory and atlas", g, []string{"Arena, pinned memory and slots are of one rank, the execution table over all ranks."}}
}

// plans are what libraries chose, in the device's own form: a column a field.
func (s sources) plans() Section {
	type planRow struct {
		at     []string
		fields map[string]string
	}
	var fields []string
	var all []planRow
	g, cols := s.comparison()
	left := 0
	for cell, src := range s.cells {
		for _, raw := range cell.Plans {
			if isTuning(raw) {
				continue // it has a section of its own
			}
			if len(all) == maxPlanRows {
				left++
				continue
			}
			values, order := planFields(raw)
			for _, f := range order {
				if !slices.Contains(fields, f) {
					fields = append(fields, f)
				}
			}
			all = append(all, planRow{keys(src, cell, cols), values})
		}
	}
	g.Header = append(g.Header, fields...)
	g.Left = len(g.Header)
	for _, p := range all {
		line := p.at
		for _, f := range fields {
			line = append(line, orDash(p.fields[f]))
		}
		g.Rows = append(g.Rows, line)
	}
	lines := []string{"Chosen once a cell and used by every process and configuration. A plan that differs is an exact difference between two records."}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("%d more are in the records.", left))
	}
	return Section{"Library plans", g, lines}
}

// tuning is how the operators of cells were run, beside what the other ways would
// have taken.
func (s sources) tuning() Section {
	g, cols := s.cellTable("way", "step", "submission", "order of graphs", "taken")
	g.LeftEnd = 2
	var lines []string
	for cell, src := range s.cells {
		t, ok := cell.Tuning()
		if !ok {
			continue
		}
		at := keys(src, cell, cols)
		order := func(o string) string {
			if o == "" {
				return "streams, as eager's"
			}
			return plain(o)
		}
		if len(t.Candidates) == 0 {
			g.Rows = append(g.Rows, append(slices.Clone(at), plain(t.Words), "-", "-", order(t.GraphOrder), plain(t.Source)))
		}
		for _, k := range t.Candidates {
			step, submit, taken := Duration(k.StepTimeNs), Duration(k.SubmitTimeNs), ""
			if k.Words == t.Words {
				taken = plain(t.Source)
			}
			if k.Failure != "" {
				step, submit, taken = "-", "-", "left out"
			}
			g.Rows = append(g.Rows, append(slices.Clone(at), plain(k.Words), step, submit, order(k.GraphOrder), taken))
		}
		if line := t.Source + ": " + t.Rule + "."; t.Rule != "" && !slices.Contains(lines, plain(line)) {
			lines = append(lines, plain(line))
		}
	}
	return Section{"Tuning", g, append([]string{
		"How a GPU ran the operators of a cell, the same in all modes and processes. Steps are of mode step, queued; graphs in another order than eager's work have a freedom that eager has not."}, lines...)}
}

// isTuning says whether a plan is listed as the cell's tuning.
func isTuning(raw json.RawMessage) bool {
	_, ok := (&results.Cell{Plans: []json.RawMessage{raw}}).Tuning()
	return ok
}

// planFields reads an object's members in their order; what is no object is
// one field.
func planFields(raw json.RawMessage) (map[string]string, []string) {
	values := map[string]string{}
	var order []string
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return map[string]string{"plan": plain(string(raw))}, []string{"plan"}
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			break
		}
		var text string
		if json.Unmarshal(v, &text) != nil {
			var b bytes.Buffer
			if text = string(v); json.Compact(&b, v) == nil {
				text = b.String()
			}
		}
		name := plain(fmt.Sprint(key))
		values[name], order = plain(text), append(order, name)
	}
	return values, order
}

func (s sources) replication() Section {
	g, cols := s.cellTable("process", "took", "blocks", "load", "status")
	g.LeftEnd = 1
	for cell, src := range s.cells {
		for _, p := range cell.Processes {
			load := "-"
			if p.Load1 != nil {
				load = fine(*p.Load1)
			}
			g.Rows = append(g.Rows, append(keys(src, cell, cols), strconv.Itoa(p.Index), Duration(float64(p.Ns)), strconv.Itoa(p.Blocks), load, orDash(plain(p.Status))))
		}
	}
	return Section{"Processes", g, []string{"A replicate is a process. Took: wall time, verification and warm-up included. Load: the machine's load average when it began."}}
}

// phases are where the wall time of each process went, a column a phase.
func (s sources) phases() Section {
	g, cols := s.comparison("process", "took")
	g.Left = len(g.Header) - 2
	var names []string
	for cell := range s.cells {
		for _, p := range cell.Processes {
			names = merged(names, p.Phases)
		}
	}
	for _, n := range names {
		g.Header = append(g.Header, strings.ReplaceAll(plain(n), "_", " "))
	}
	for cell, src := range s.cells {
		for _, p := range cell.Processes {
			if len(p.Phases) == 0 {
				continue // of a record before 1.3, or failed
			}
			line := append(keys(src, cell, cols), strconv.Itoa(p.Index), Duration(float64(p.Ns)))
			for _, n := range names {
				text := "-"
				if i := slices.IndexFunc(p.Phases, func(have results.ProcessPhase) bool { return have.Phase == n }); i >= 0 {
					text = Duration(float64(p.Phases[i].Ns))
				}
				line = append(line, text)
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return Section{"Where a process's time went", g, []string{
		"Wall time by the host's clock. Timed are blocks and single steps; verify has the capture of all graphs in it, build of a cell's first process the choice of library plans, restore the readings and the garbage collection beside each block."}}
}

// merged adds phases to those of other processes, each behind the one that it
// came behind.
func merged(names []string, phases []results.ProcessPhase) []string {
	at := 0
	for _, p := range phases {
		if i := slices.Index(names, p.Phase); i >= 0 {
			at = i + 1
			continue
		}
		names = slices.Insert(names, at, p.Phase)
		at++
	}
	return names
}

// runs is how each record was made.
func (s sources) runs() Section {
	g := s.perRecord("run")
	rows := []struct {
		name string
		of   func(*results.Record) string
	}{
		{"created", func(r *results.Record) string {
			if r.Created.IsZero() {
				return ""
			}
			return r.Created.UTC().Format("2006-01-02 15:04:05 UTC")
		}},
		{"arguments", func(r *results.Record) string { return strings.Join(r.Arguments, " ") }},
		{"status", func(r *results.Record) string { return r.Status }},
		{"quick", func(r *results.Record) string { return strconv.FormatBool(r.Quick) }},
		{"seed", func(r *results.Record) string { return strconv.FormatUint(r.Seed, 10) }},
		{"schema", func(r *results.Record) string {
			return fmt.Sprintf("%s %d.%d", r.Schema.Name, r.Schema.Major, r.Schema.Minor)
		}},
		{"processes a cell", ofPlan(func(p *results.Plan) string { return strconv.Itoa(p.Processes) })},
		{"blocks a process", ofPlan(func(p *results.Plan) string { return strconv.Itoa(p.Blocks) })},
		{"steps a block", ofPlan(func(p *results.Plan) string { return strconv.Itoa(p.Steps) })},
		{"warm-up", ofPlan(func(p *results.Plan) string {
			if p.Warmup == nil {
				return fmt.Sprintf("until no trend, at most %d steps", p.WarmupCap)
			}
			return fmt.Sprintf("%d steps", *p.Warmup)
		})},
		{"budget", ofPlan(func(p *results.Plan) string {
			if p.BudgetNs == 0 {
				return "none"
			}
			return Duration(float64(p.BudgetNs))
		})},
		{"data", ofPlan(func(p *results.Plan) string { return p.Data })},
	}
	for _, row := range rows {
		line := []string{row.name}
		some := false
		for _, src := range s.list {
			v := plain(row.of(src.record))
			line, some = append(line, orDash(v)), some || v != ""
		}
		if some {
			g.Rows = append(g.Rows, line)
		}
	}
	return Section{"How it was run", g, nil}
}

func ofPlan(of func(*results.Plan) string) func(*results.Record) string {
	return func(r *results.Record) string {
		if r.Plan == nil {
			return ""
		}
		return of(r.Plan)
	}
}

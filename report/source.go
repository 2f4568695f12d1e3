package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tech-renaissance/trbench/results"
)

// Named is a record and what readers know it by, as a rule its file's name.
type Named struct {
	Name   string
	Record *results.Record
	// Dir is the folder of the record's file, where timelines lie that it names.
	Dir string
	// Peers are others' results, to be set beside the records of a report.
	Peers []Peer
	// LaunchFloorNs is what a launch takes in a loop in C, of the records of a
	// report; 0 is unknown.
	LaunchFloorNs float64
	// calibrations are those of the records that rows of a sweep came from.
	calibrations map[place][]results.Reading
	// parts are the records of a sweep, by name.
	parts []string
}

// fact is one thing that may differ between records.
type fact struct{ name, value string }

// source is a record among others.
type source struct {
	name   string
	record *results.Record
	dir    string // of its file
	// calibrations are by row in a sweep; nil elsewhere.
	calibrations map[place][]results.Reading
	facts        []fact
	// shown are the values of the facts in which the records differ, in the
	// order of sources.columns.
	shown []string
}

// sources are the records of one report.
type sources struct {
	list []*source
	// columns name the facts in which the records differ.
	columns []string
	peers   []Peer
	floorNs float64
	parts   []string // the records of a sweep, by name
	// further names facts that differ too, for which a table has no room.
	further []string
}

// maxColumns bounds how many facts stand beside each row: a machine's
// description has dozens that change together.
const maxColumns = 3

// gather prepares records for one report. Records that are nil are left out.
func gather(records []Named) sources {
	var s sources
	seen := map[string]int{}
	for _, n := range records {
		if n.Record == nil {
			continue
		}
		s.peers, s.floorNs = append(s.peers, n.Peers...), max(s.floorNs, n.LaunchFloorNs)
		s.parts = append(s.parts, n.parts...)
		name := plain(n.Name)
		if name == "" {
			name = "record"
		}
		// Two records of one name would make a column that tells nothing.
		if seen[name]++; seen[name] > 1 {
			name += "#" + strconv.Itoa(seen[name])
		}
		s.list = append(s.list, &source{name: name, record: n.Record, dir: n.Dir, calibrations: n.calibrations, facts: factsOf(n.Record)})
	}
	s.compare()
	return s
}

// single wraps one record that needs no name.
func single(r *results.Record) sources { return gather([]Named{{Record: r}}) }

// factsOf lists what may differ, what explains a difference best first: the
// subject of a comparison before the bed.
func factsOf(r *results.Record) []fact {
	revision := r.Program.Revision
	if len(revision) > 12 {
		revision = revision[:12]
	}
	if r.Program.Dirty != nil && *r.Program.Dirty {
		revision += "+dirty"
	}
	if r.Program.RevisionFrom == results.FromCheckout {
		revision += "+checkout"
	}
	facts := []fact{{"revision", revision}, {"version", r.Program.Version}}
	fields := slices.Clone(r.Environment.Fields)
	slices.SortStableFunc(fields, func(a, b results.EnvironmentField) int {
		return cmp.Compare(roleOrder(a.Role), roleOrder(b.Role))
	})
	own := []fact{
		{"device", r.Device.Description}, {"os", strings.Trim(r.Host.OS+"/"+r.Host.Arch, "/")},
		{"cpus", strconv.Itoa(r.Host.CPUs)}, {"go", r.Program.Go},
	}
	for _, f := range fields {
		facts = append(facts, fact{f.Name, f.Value})
	}
	facts = append(facts, own...)
	for i := range facts {
		facts[i] = fact{plain(facts[i].name), plain(facts[i].value)}
	}
	return facts
}

func roleOrder(role string) int {
	if role == results.Subject {
		return 0
	}
	return 1
}

// calibration is what the session of a row measured.
func (s *source) calibration(cell *results.Cell, conf *results.Configuration) []results.Reading {
	if s.calibrations != nil {
		return s.calibrations[place{cell.Key, conf.Key}]
	}
	return s.record.Environment.Calibration
}

func (s *source) fact(name string) string {
	for _, f := range s.facts {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// compare finds the facts that differ. The file's name joins them if they do
// not tell all records apart.
func (s *sources) compare() {
	if len(s.list) < 2 {
		return
	}
	var names []string
	for _, src := range s.list {
		for _, f := range src.facts {
			if !slices.Contains(names, f.name) {
				names = append(names, f.name)
			}
		}
	}
	differ := slices.DeleteFunc(names, func(name string) bool {
		first := s.list[0].fact(name)
		return !slices.ContainsFunc(s.list, func(o *source) bool { return o.fact(name) != first })
	})
	// Facts that split the records each in its own way come first; one that
	// splits them as another does says why, if there is room.
	var partitions []string
	chosen := map[string]bool{}
	for _, name := range differ {
		if p := s.partition(name); len(partitions) < maxColumns && !slices.Contains(partitions, p) {
			partitions, chosen[name] = append(partitions, p), true
		}
	}
	for _, name := range differ {
		if len(chosen) < maxColumns {
			chosen[name] = true
		}
		if chosen[name] {
			s.columns = append(s.columns, name)
		} else {
			s.further = append(s.further, name)
		}
	}
	for _, src := range s.list {
		for _, name := range s.columns {
			src.shown = append(src.shown, orDash(src.fact(name)))
		}
	}
	told := map[string]bool{}
	for _, src := range s.list {
		told[strings.Join(src.shown, "\x00")] = true
	}
	if len(told) == len(s.list) {
		return
	}
	s.columns = append([]string{"file"}, s.columns...)
	for _, src := range s.list {
		src.shown = append([]string{src.name}, src.shown...)
	}
}

// partition says which records agree in a fact.
func (s *sources) partition(name string) string {
	first := map[string]int{}
	var b strings.Builder
	for i, src := range s.list {
		v := src.fact(name)
		if _, ok := first[v]; !ok {
			first[v] = i
		}
		fmt.Fprintf(&b, "%d,", first[v])
	}
	return b.String()
}

// lines says what a sweep's records are, and what else differs.
func (s *sources) lines() []string {
	if len(s.parts) > 0 {
		return append([]string{"Records: " + strings.Join(s.parts, ", ") + "."}, s.differences()...)
	}
	return s.differences()
}

func (s *sources) differences() []string {
	if len(s.further) == 0 {
		return nil
	}
	names := s.further
	more := ""
	if len(names) > 12 {
		more = fmt.Sprintf(" and %d more", len(names)-12)
		names = names[:12]
	}
	return []string{"The records also differ in " + strings.Join(names, ", ") + more + "."}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Plain is text of others made fit for one line of any output.
func Plain(s string) string { return plain(s) }

// plain is text fit for one line of any output: a record may come from
// anywhere, and a worker's stderr holds whatever a library wrote.
func plain(s string) string {
	s = escapes.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

// escapes are a terminal's colours and cursor movements.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// failed tells whether a cell did not come to its end. Records built before
// the status existed have none.
func failed(c *results.Cell) bool { return c.Status == results.Failed }

// onCPU tells whether a cell shows the method only.
func onCPU(c *results.Cell) bool { return c.Key.Device == "cpu" }

// processes counts a cell's finished replicates and all of them.
func processes(c *results.Cell) (done, all int) {
	for _, p := range c.Processes {
		if p.Status != results.Failed {
			done++
		}
	}
	return done, len(c.Processes)
}

// row is one configuration of one cell of one record.
type row struct {
	source *source
	cell   *results.Cell
	conf   *results.Configuration
}

// rows lists all configurations, in the records' order.
func (s *sources) rows() []row {
	var out []row
	for _, src := range s.list {
		for i := range src.record.Cells {
			c := &src.record.Cells[i]
			for j := range c.Configurations {
				out = append(out, row{src, c, &c.Configurations[j]})
			}
		}
	}
	return out
}

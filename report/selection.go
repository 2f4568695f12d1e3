package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// named is a table that can be asked for.
type named struct {
	name string
	// usual tables are those of a report that nobody chose tables for.
	usual bool
	of    func(sources) Section
	// needs is what a record must have for it. It continues "needs".
	needs string
}

func tables() []named {
	const traced = "a record of run --trace"
	return []named{
		{"figures", true, sources.figuresTable, "a cell whose modes agree"},
		{"headline", true, sources.headlines, "a record of a GPU: a CPU's shows the method, not the gain"},
		{"split", true, sources.splits, "a record of a GPU with --mode=eager,graph --sync=event,host, of 2 processes and more: a CPU's shows the method, not the gain"},
		{"ratios", true, sources.ratios, "a cell in two configurations"},
		{"peers", true, sources.peerTable, "--beside=FILE, with results for cells of one GPU in these records"},
		{"idle", true, sources.idleShares, traced},
		{"trace", true, sources.times, traced},
		{"late", true, sources.lateness, traced + " in which the device waited for its host"},
		{"launches", true, sources.launchCosts, traced + " on a GPU"},
		{"bound", false, sources.bounds, traced + " on a GPU, with eager steps of the program's own launcher"},
		{"phases", false, sources.phases, "a record of schema 1.3 or later"},
		{"preparation", false, sources.preparation, "a captured mode"},
		{"graphs", false, sources.graphs, "a captured mode, in a record of schema 1.4 or later"},
	}
}

// TableNeeds says, of tables that [Selected] found empty, what each needs of the
// records: a sentence.
func TableNeeds(names []string) string {
	var out []string
	for _, t := range tables() {
		if slices.Contains(names, t.name) {
			out = append(out, t.name+" needs "+t.needs)
		}
	}
	return strings.Join(out, "; ")
}

// TableNames are the words for single tables, in the order they are printed.
func TableNames() []string {
	var out []string
	for _, t := range tables() {
		out = append(out, t.name)
	}
	return out
}

// figuresTable comes with everything that casts doubt on the figures, so a reader
// who stops there has seen it.
func (s sources) figuresTable() Section {
	return Section{"Figures", s.figures(), slices.Concat(
		s.intervalLine(), s.evidence(), s.failures(), s.warnings(), s.notes(), s.lines())}
}

// sections are the figures, then what else the records carry of the usual tables.
func (s sources) sections() []Section {
	var out []Section
	for _, t := range tables() {
		if !t.usual {
			continue
		}
		if section := t.of(s); t.name == tables()[0].name || len(section.Grid.Rows) > 0 {
			out = append(out, section)
		}
	}
	return out
}

// Selected writes some of [TableNames], in their order, with their titles, as a
// terminal's tables or, with [FormatMarkdown], Markdown's. Without the figures,
// whose lines have all doubts, the kinds of doubts follow. It returns the names of
// tables for which the records have nothing, and writes nothing if that is all.
func Selected(w io.Writer, format string, records []Named, names []string) (empty []string, err error) {
	s := gather(records)
	var chosen []Section
	for _, t := range tables() {
		if !slices.Contains(names, t.name) {
			continue
		}
		if section := t.of(s); len(section.Grid.Rows) > 0 {
			chosen = append(chosen, section)
		} else {
			empty = append(empty, t.name)
		}
	}
	if len(chosen) == 0 {
		return empty, nil
	}
	if !slices.Contains(names, tables()[0].name) {
		last := &chosen[len(chosen)-1]
		last.Lines = slices.Concat(last.Lines, s.failures(), s.doubtKinds())
	}
	if format != FormatMarkdown {
		return empty, writeSections(w, chosen, true)
	}
	var b strings.Builder
	for i, t := range chosen {
		if i > 0 {
			b.WriteString("\n")
		}
		t.markdown(&b)
	}
	_, err = io.WriteString(w, b.String())
	return empty, err
}

// doubtKinds names the kinds of warnings in a line.
func (s sources) doubtKinds() []string {
	var codes []string
	for _, d := range s.doubts() {
		if c := plain(d.Code); !slices.Contains(codes, c) {
			codes = append(codes, c)
		}
	}
	switch len(codes) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("Warning: the records have 1 warning, %s; the table of figures has its text.", codes[0])}
	}
	return []string{fmt.Sprintf("Warning: the records have warnings of %d kinds, %s; the table of figures has their texts.", len(codes), strings.Join(codes, ", "))}
}

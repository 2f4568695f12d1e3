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
}

func tables() []named {
	return []named{
		{"figures", true, sources.figuresTable}, {"headline", true, sources.headlines}, {"split", true, sources.splits}, {"ratios", true, sources.ratios},
		{"peers", true, sources.peerTable}, {"idle", true, sources.idleShares}, {"trace", true, sources.times}, {"late", true, sources.lateness},
		{"launches", true, sources.launchCosts}, {"bound", false, sources.bounds}, {"phases", false, sources.phases},
		{"preparation", false, sources.preparation}, {"graphs", false, sources.graphs},
	}
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

package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// JoinError is a record that is no part of a sweep with the others.
type JoinError struct {
	Name, Reason string
}

func (e *JoinError) Error() string { return "record " + e.Name + " " + e.Reason }

// Join makes one record of a sweep that was recorded in several files: parts of
// one table, of any number of workloads, and not sides of a comparison. So there
// is no column for the file, and a picture has all batches. Each row may be there
// once, and all must have run on one kind of device; what else differs becomes a
// warning. What is of one session alone (readings, calibration, plan, arguments)
// is left out; the records have it. The error is a [*JoinError].
func Join(records []Named) (Named, error) {
	records = slices.DeleteFunc(slices.Clone(records), func(n Named) bool { return n.Record == nil })
	if len(records) < 2 {
		if len(records) == 0 {
			return Named{}, ErrNoRecords
		}
		return records[0], nil
	}
	first := records[0]
	r := *first.Record
	r.Plan, r.PlanDigest, r.Arguments, r.Extra = nil, "", nil, nil
	r.Environment = results.Environment{Fields: slices.Clone(r.Environment.Fields)}
	r.Cells, r.Warnings = nil, nil
	owner := map[place]string{}
	calibrations := map[place][]results.Reading{}
	var names []string
	for i, n := range records {
		names = append(names, plain(n.Name))
		if a, b := deviceOf(n.Record), deviceOf(first.Record); a != b || n.Record.Device.Name != first.Record.Device.Name {
			return Named{}, &JoinError{n.Name, fmt.Sprintf("is of device %s, and %s is of %s: no one sweep", a, first.Name, b)}
		}
		for _, c := range n.Record.Cells {
			for j := range c.Configurations {
				k := c.Configurations[j].Key
				if had, ok := owner[place{c.Key, k}]; ok {
					return Named{}, &JoinError{n.Name, fmt.Sprintf("has %s as %s, which %s has as well: a sweep has each once", c.Key.Name(), name(k), had)}
				}
				owner[place{c.Key, k}], calibrations[place{c.Key, k}] = n.Name, n.Record.Environment.Calibration
			}
			r.Cells = append(r.Cells, c)
		}
		for _, w := range n.Record.Warnings {
			if !slices.ContainsFunc(r.Warnings, func(have results.Warning) bool { return have.Code == w.Code && have.Text == w.Text }) {
				r.Warnings = append(r.Warnings, w)
			}
		}
		if i == 0 {
			continue
		}
		r.Quick = r.Quick || n.Record.Quick
		if n.Record.Status != results.Complete {
			r.Status = n.Record.Status
		}
		if n.Record.Created.Before(r.Created) {
			r.Created = n.Record.Created
		}
		for _, f := range n.Record.Environment.Fields {
			if _, ok := r.Environment.Field(f.Name); !ok {
				r.Environment.Fields = append(r.Environment.Fields, f)
			}
		}
		if filepath.Clean(n.Dir) != filepath.Clean(first.Dir) {
			first.Dir = "" // timelines could be another record's of the same name
		}
	}
	sweepOrder(r.Cells)
	r.Warnings = append(r.Warnings, unlike(records, &r)...)
	return Named{Name: fmt.Sprintf("sweep of %d records", len(names)), parts: names, Record: &r, Dir: first.Dir, calibrations: calibrations}, nil
}

// place is a row's in a sweep.
type place struct {
	cell results.CellKey
	conf results.ConfigurationKey
}

// sweepOrder is that of the axes, since files come in the order of their names,
// in which 16 is before 4. Workloads and kinds of cells stay as they come.
func sweepOrder(cells []results.Cell) {
	rank := map[results.CellKey]int{}
	kind := func(k results.CellKey) results.CellKey {
		k.Batch, k.GPUs, k.LastBatch = 0, 0, results.LastBatch{}
		return k
	}
	for _, c := range cells {
		if _, ok := rank[kind(c.Key)]; !ok {
			rank[kind(c.Key)] = len(rank)
		}
	}
	slices.SortStableFunc(cells, func(a, b results.Cell) int {
		return cmp.Or(cmp.Compare(rank[kind(a.Key)], rank[kind(b.Key)]), cmp.Compare(a.Key.GPUs, b.Key.GPUs), cmp.Compare(a.Key.Batch, b.Key.Batch))
	})
}

// unlike warns of what differs between the parts of a sweep, and leaves out of r
// what is not true of all.
func unlike(records []Named, r *results.Record) []results.Warning {
	revisions := map[string][]string{}
	var order, fields []string
	for _, n := range records {
		src := gather([]Named{n}).list[0]
		v := orDash(src.fact("revision"))
		if revisions[v] == nil {
			order = append(order, v)
		}
		revisions[v] = append(revisions[v], plain(n.Name))
	}
	r.Environment.Fields = slices.DeleteFunc(r.Environment.Fields, func(f results.EnvironmentField) bool {
		differs := slices.ContainsFunc(records, func(n Named) bool {
			have, ok := n.Record.Environment.Field(f.Name)
			return ok && have.Value != f.Value
		})
		if differs && !strings.HasPrefix(f.Name, "program.") {
			fields = append(fields, plain(f.Name))
		}
		return differs
	})
	var out []results.Warning
	if len(order) > 1 {
		var words []string
		for _, v := range order {
			words = append(words, fmt.Sprintf("%s (%s)", v, strings.Join(revisions[v], ", ")))
		}
		r.Program.Revision, r.Program.Version, r.Program.Dirty = "", "", nil
		out = append(out, results.Warning{Code: "revisions_differ", Text: "the sweep is of several revisions, so rows of different ones differ in the program as well: " + strings.Join(words, "; ")})
	}
	if len(fields) > 0 {
		out = append(out, results.Warning{Code: "machines_differ", Text: "the parts of the sweep were recorded with different " + strings.Join(fields, ", ") + ": see the records"})
	}
	return out
}

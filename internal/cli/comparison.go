package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/internal/cuda/gpuinfo"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// comparison is what is compared: two sides of a first measurement and, where
// there was one, of a second.
type comparison struct {
	base, head           []guard.Named
	baseAgain, headAgain []guard.Named
	// alone says that the second measurement is of head alone, and compared with
	// base's records; missing that there was to be one and is none.
	alone, missing bool
	// allow names fields of the bed that may differ.
	allow   []string
	options guard.Options
}

func (c *comparison) confirmed() bool { return len(c.headAgain) > 0 || c.missing }

// sides lists all records with where they stand, base's first.
func (c *comparison) sides() []sided {
	return []sided{
		{results.BaseSide, c.base}, {results.HeadSide, c.head},
		{results.BaseAgain, c.baseAgain}, {results.HeadAgain, c.headAgain},
	}
}

type sided struct {
	side    string
	records []guard.Named
}

// ofHead says whether a side is head's.
func (s sided) ofHead() bool { return s.side == results.HeadSide || s.side == results.HeadAgain }

// compare judges. Beds that differ are an input error that names the fields.
func (c *comparison) compare() (*results.Comparison, error) {
	out := &results.Comparison{
		Schema:    results.Schema{Name: results.ComparisonName, Major: results.ComparisonMajor, Minor: results.ComparisonMinor},
		Confirmed: c.confirmed(),
	}
	if err := c.places(out); err != nil {
		return nil, err
	}
	g, err := guard.Gather(c.base, c.head)
	if err != nil {
		return nil, err
	}
	if len(g.Rows) == 0 {
		return nil, &bench.InputError{
			Name: "BASE and HEAD", Reason: "have no row in common: " + strings.Join(results.Gated(), ", ") + " of a cell and configuration that both have",
			Hint: "trbench report shows what each has",
		}
	}
	out.Rows = guard.Decide(g.Rows, c.options)
	out.OnlyBase, out.OnlyHead, out.Exact, out.Partial = g.OnlyBase, g.OnlyHead, g.Exact, g.Partial
	if c.confirmed() {
		if err := c.confirm(out); err != nil {
			return nil, err
		}
	}
	out.Verdict = guard.Overall(out.Rows, len(out.Partial) > 0)
	return out, nil
}

// confirm judges the slower rows by the second measurement.
func (c *comparison) confirm(out *results.Comparison) error {
	again := guard.Again{Alone: c.alone}
	beside := c.baseAgain
	if c.alone {
		beside = c.base
		out.Warnings = append(out.Warnings, results.CarriedWarning{Warning: results.Warning{Code: "head_measured_again",
			Text: "slower rows were measured again on head alone, and compared with base's first figures: that can show that a bad moment is over, and fails no night, as the machine may have become slower since"}})
	}
	g, err := guard.Gather(beside, c.headAgain)
	if err != nil {
		return err
	}
	again.Rows = g.Rows
	if !c.alone {
		if g, err = guard.Gather(c.base, c.baseAgain); err != nil {
			return err
		}
		again.Base = g.Rows
	}
	out.Rows = guard.Confirm(out.Rows, again, c.options)
	return nil
}

// places fills in what is known of the records and of where they ran.
func (c *comparison) places(out *results.Comparison) error {
	if err := c.distinct(out); err != nil {
		return err
	}
	for _, s := range c.sides() {
		for _, r := range s.records {
			created := ""
			if !r.Record.Created.IsZero() {
				created = r.Record.Created.UTC().Format(time.RFC3339)
			}
			out.Records = append(out.Records, results.Compared{
				Side: s.side, Name: r.Name, Created: created, Revision: r.Record.Program.Revision, Status: r.Record.Status,
			})
			for _, w := range r.Record.Warnings {
				out.Warnings = append(out.Warnings, results.CarriedWarning{Side: s.side, Record: r.Name, Warning: w})
			}
			for i := range r.Record.Cells {
				for _, w := range r.Record.Cells[i].Warnings {
					key := r.Record.Cells[i].Key
					out.Warnings = append(out.Warnings, results.CarriedWarning{Side: s.side, Record: r.Name, Cell: &key, Warning: w})
				}
			}
		}
	}
	subjects, beds := c.differences()
	if !slices.ContainsFunc(subjects, func(d results.FieldDifference) bool { return strings.HasPrefix(d.Name, "program.") }) {
		subjects = append(subjects, c.builds()...)
	}
	out.Suspects = subjects
	var refused []results.FieldDifference
	for _, d := range beds {
		if slices.Contains(c.allow, d.Name) {
			out.Allowed = append(out.Allowed, d)
		} else {
			refused = append(refused, d)
		}
	}
	if err := c.knownFields(); err != nil {
		return err
	}
	if len(refused) == 0 {
		return nil
	}
	var names, said []string
	for _, d := range refused {
		names = append(names, d.Name)
		said = append(said, describeDifference(d))
	}
	return &bench.InputError{
		Name: "BASE and HEAD", Reason: "were not measured in the same place: " + strings.Join(said, "; "),
		Hint: "compare runs of one machine, or let it pass with --allow=" + strings.Join(names, ","),
	}
}

func describeDifference(d results.FieldDifference) string {
	said := func(values []string) string {
		var out []string
		for _, v := range values {
			if v == "" {
				v = "not known"
				if d.Why != "" {
					v += " (" + d.Why + ")"
				}
			}
			out = append(out, v)
		}
		return strings.Join(out, " or ")
	}
	return fmt.Sprintf("%s is %s against %s", d.Name, said(d.Base), said(d.Head))
}

// distinct refuses a record that is given twice where that would count it
// twice. Base against itself is allowed, and said.
func (c *comparison) distinct(out *results.Comparison) error {
	type place struct{ side, name string }
	seen := map[string]place{}
	for _, s := range c.sides() {
		for _, r := range s.records {
			id := identity(r.Record)
			before, again := seen[id]
			switch {
			case !again:
				seen[id] = place{s.side, r.Name}
			case before.side == results.BaseSide && s.side == results.HeadSide:
				out.Warnings = append(out.Warnings, results.CarriedWarning{Warning: results.Warning{
					Code: "same_record", Text: r.Name + " is on both sides: nothing is compared with anything",
				}})
			default:
				return &bench.InputError{
					Name: "record " + r.Name, Reason: fmt.Sprintf("is given twice, as %s of %s and as %s: it would count twice", before.name, before.side, s.side),
					Hint: "name each run once; a confirmation is another run, at another time",
				}
			}
		}
	}
	return nil
}

// identity tells runs apart: when they began, and their processes.
func identity(r *results.Record) string {
	var b strings.Builder
	fmt.Fprint(&b, r.Created.UnixNano(), r.Seed)
	for _, c := range r.Cells {
		fmt.Fprint(&b, c.Key)
		for _, p := range c.Processes {
			fmt.Fprint(&b, " ", p.PID, p.Ns)
		}
		for _, x := range c.Configurations {
			for _, m := range x.Metrics {
				fmt.Fprint(&b, " ", m.Value)
			}
		}
	}
	return b.String()
}

// blockSteps is the field for the timed steps of a block: of a longer block, less
// of its step time is the wait at its end.
const blockSteps = "steps"

// places of a record beside its environment, all of the bed.
func placeOf(r *results.Record) map[string]string {
	steps := ""
	for _, c := range r.Cells {
		if text := strconv.Itoa(c.Steps); steps == "" {
			steps = text
		} else if steps != text {
			steps = "several"
		}
	}
	return map[string]string{
		"host.os": r.Host.OS, "host.arch": r.Host.Arch, "host.cpus": strconv.Itoa(r.Host.CPUs),
		"device.name": r.Device.Name, "device.description": r.Device.Description, blockSteps: steps,
	}
}

var placeFields = []string{"host.os", "host.arch", "host.cpus", "device.name", "device.description", blockSteps}

// knownFields refuses an --allow that neither a record nor this program knows.
func (c *comparison) knownFields() error {
	known := map[string]bool{}
	for _, s := range c.sides() {
		for _, r := range s.records {
			for _, f := range r.Record.Environment.Fields {
				known[f.Name] = true
			}
		}
	}
	for _, a := range c.allow {
		if !known[a] && !bedField(a) {
			return &bench.InputError{Name: "--allow", Reason: fmt.Sprintf("names %q, which no record has", a), Hint: "trbench info lists the fields"}
		}
	}
	return nil
}

// gpuCalibration is the field of a GPU that could not be calibrated.
const gpuCalibration = "gpu.calibration"

// bedField says whether a field of this name may differ between places.
func bedField(name string) bool {
	return slices.Contains(machine.BedFields(), name) || slices.Contains(placeFields, name) || len(name) > len(machine.EnvPrefix) && strings.HasPrefix(name, machine.EnvPrefix) ||
		slices.Contains([]string{gpuinfo.ComputeCapability, gpuinfo.Multiprocessors, gpuCalibration}, name)
}

// differences are facts in which records are not known to agree: of the
// subject where head's differ from base's, and of the bed where any two do.
func (c *comparison) differences() (subjects, beds []results.FieldDifference) {
	first := c.base[0].Record
	var order []string
	found := map[string]*results.FieldDifference{}
	note := func(d machine.Difference, role string) {
		f := found[d.Name]
		if f == nil {
			f = &results.FieldDifference{Name: d.Name, Role: role}
			found[d.Name] = f
			order = append(order, d.Name)
		}
		if f.Why == "" {
			f.Why = d.WhyA + d.WhyB // a known value has none
		}
	}
	each := func(visit func(s sided, r *results.Record)) {
		for _, s := range c.sides() {
			for _, r := range s.records {
				visit(s, r.Record)
			}
		}
	}
	each(func(_ sided, r *results.Record) {
		subject, bed := machine.Differences(environmentOf(first), environmentOf(r))
		for _, d := range subject {
			note(d, results.Subject)
		}
		for _, d := range bed {
			note(d, results.Bed)
		}
		a, b := placeOf(first), placeOf(r)
		for _, name := range placeFields {
			if a[name] != b[name] {
				note(machine.Difference{Name: name}, results.Bed)
			}
		}
	})
	each(func(s sided, r *results.Record) {
		for name, d := range found {
			side := &d.Base
			if s.ofHead() {
				side = &d.Head
			}
			if v := valueOf(r, name); !slices.Contains(*side, v) {
				*side = append(*side, v)
			}
		}
	})
	for _, name := range order {
		switch d := *found[name]; {
		case d.Role == results.Bed:
			beds = append(beds, d)
		case !slices.Equal(slices.Sorted(slices.Values(d.Base)), slices.Sorted(slices.Values(d.Head))):
			subjects = append(subjects, d)
		}
	}
	return subjects, beds
}

// builds is that the sides are of different files of a program that calls itself
// the same, as builds with local changes do; nothing where that is not known.
func (c *comparison) builds() []results.FieldDifference {
	const digits = 12
	d := results.FieldDifference{Name: "program.executable", Role: results.Subject}
	for _, s := range c.sides() {
		side := &d.Base
		if s.ofHead() {
			side = &d.Head
		}
		for _, r := range s.records {
			sum := r.Record.Program.Executable
			if len(sum) < digits {
				return nil
			}
			if sum = sum[:digits]; !slices.Contains(*side, sum) {
				*side = append(*side, sum)
			}
		}
	}
	if slices.Equal(slices.Sorted(slices.Values(d.Base)), slices.Sorted(slices.Values(d.Head))) {
		return nil
	}
	return []results.FieldDifference{d}
}

// environmentOf is a record's environment, or of one without, such as those
// before 1.1, what it says of the program.
func environmentOf(r *results.Record) results.Environment {
	if len(r.Environment.Fields) > 0 {
		return r.Environment
	}
	field := func(name, value string) results.EnvironmentField {
		return results.EnvironmentField{Name: name, Value: value, Role: results.Subject}
	}
	return results.Environment{Fields: []results.EnvironmentField{
		field(machine.ProgramVersion, r.Program.Version), field(machine.ProgramRevision, r.Program.Revision), field(machine.GoVersion, r.Program.Go),
	}}
}

// valueOf is a field's value in a record; empty if not known.
func valueOf(r *results.Record, name string) string {
	if slices.Contains(placeFields, name) {
		return placeOf(r)[name]
	}
	e := environmentOf(r)
	f, ok := e.Field(name)
	if !ok && strings.HasPrefix(name, machine.EnvPrefix) && len(r.Environment.Fields) > 0 {
		return "(not set)"
	}
	return f.Value
}

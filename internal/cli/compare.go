package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
)

type compareOptions struct {
	env         *Env
	format      names
	allow       []string
	explain     string
	html        string
	confirmBase []string
	confirmHead []string
}

func newCompareCmd(env *Env) *cobra.Command {
	o := &compareOptions{env: env, format: names{known: report.VerdictFormats(), one: true, values: []string{report.FormatText}}}
	d := guard.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "compare BASE HEAD",
		Short: "judge whether one record is slower than another",
		Long: fmt.Sprintf(`compare judges head against base, row by row: a row is a cell, a configuration
and one of %s. Each side is a record, or several
separated by commas, each of which is then a run of that side: a pinned set of
good runs as BASE shows how much a run's median moves by itself.

What differs between the sides in program, driver or libraries is printed first,
as suspects. Records of different machines are refused, unless --allow names the
fields that may differ. Launches, kernels, graph nodes and library plans are
counted or chosen, not measured, and stand apart; they do not change the
verdict.

A row is slower, or faster, if both hold:
  - Mann and Whitney's test of the processes' medians, exact and two-sided, has
    p of at most %g after Holm's correction over all rows;
  - the medians differ by at least %g %% and %g times the row's noise, which is
    how much a run's median moves by itself, known from 3 runs of a side on.
It is ambiguous if the difference is that large but may be chance, if so few
processes could not show any (with 8 a side 321 rows can be judged, with 3 none),
or if they differ so much that a change of %g %% could hide, which none can where
the figures of both sides are equal. Else it is the same. --explain prints every
number behind a row's verdict, and why there was no alert: a row's name or a part of it.

A slower row is confirmed by a second measurement of both sides, in fresh
processes at another time, which --confirm-base and --confirm-head name: %d
processes a side and more. Only rows that both call slower then count; one that
the second does not is ambiguous where base itself became slower between the two:
what did that is not the program. Measured
once, a slower row is listed as slower and the exit code is 3: a bad moment of the
machine looks the same, and repeats itself only by chance. With one process a side,
or any number that cannot carry so many rows, every row is ambiguous, and how many
processes are needed is said.

--html writes a page for a browser: the verdict with all of its numbers first,
then what report --html shows of the records of both sides. It says on stderr
where.

Exit codes: 0 nothing is slower; 1 a row is slower, and confirmed; 2 the command
line or a record cannot be used; 3 a row is slower and was measured once, or is
ambiguous, or something is missing: an unfinished record, a failed cell, a row
that base has and head lacks; 4 the modes in a record disagree.`,
			strings.Join(results.Gated(), ", "), d.Alpha, 100*d.MinEffect, d.NoiseFactor, 100*d.MaxHidden, guard.ConfirmProcesses),
		Example: `  trbench compare base.json head.json
  trbench compare mon.json,tue.json,wed.json thu.json
  trbench compare base.json head.json --explain=eager/event/device/step_time_ns
  trbench compare base.json head.json --confirm-base=base2.json --confirm-head=head2.json
  trbench compare base.json head.json --format=junit
  trbench compare base.json head.json --html=page.html`,
	}
	f := cmd.Flags()
	f.Var(&o.format, "format", strings.Join(report.VerdictFormats(), ", "))
	f.StringSliceVar(&o.allow, "allow", nil, "fields of the machine that may differ, separated by commas")
	f.StringVar(&o.explain, "explain", "", "print every number behind the rows whose names have this in them")
	f.StringVar(&o.html, "html", "", "write a page for a browser to this file: the verdict, then the records of both sides")
	f.StringSliceVar(&o.confirmBase, "confirm-base", nil, "records of a second measurement of base")
	f.StringSliceVar(&o.confirmHead, "confirm-head", nil, "records of a second measurement of head")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) }
	return cmd
}

func (o *compareOptions) run(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return &usageError{
			text: fmt.Sprintf("compare takes two sides, BASE and HEAD, not %d", len(args)),
			hint: "several records of a side are separated by commas: trbench compare mon.json,tue.json,wed.json thu.json",
		}
	}
	if (len(o.confirmBase) > 0) != (len(o.confirmHead) > 0) {
		return &bench.InputError{Name: "--confirm-base and --confirm-head", Reason: "go together: a confirmation measures both sides again"}
	}
	if cmd.Flags().Changed("explain") && (o.format.given && o.format.values[0] != report.FormatText || o.explain == "") {
		return &bench.InputError{Name: "--explain", Reason: "takes a row's name or a part of it, and prints text", Hint: "--format=json has every number of every row"}
	}
	if cmd.Flags().Changed("html") && o.html == "" {
		return errNoPageName()
	}
	c := comparison{allow: o.allow, options: guard.DefaultOptions()}
	for _, side := range []struct {
		files []string
		to    *[]guard.Named
	}{{o.files(args[0]), &c.base}, {o.files(args[1]), &c.head}, {o.confirmBase, &c.baseAgain}, {o.confirmHead, &c.headAgain}} {
		list, err := o.read(side.files)
		if err != nil {
			return err
		}
		*side.to = list
	}
	judged, err := c.compare()
	if err != nil {
		return err
	}
	if o.explain != "" {
		err = o.explained(judged)
	} else {
		err = report.Verdict(o.env.Stdout, o.format.values[0], judged)
	}
	if err == nil && o.html != "" {
		err = o.page(&c, judged)
	}
	return errors.Join(err, verdictError(judged))
}

// page writes the page and says where. Records of a confirmation are left out:
// their figures are in the verdict's rows.
func (o *compareOptions) page(c *comparison, judged *results.Comparison) error {
	var records []report.Named
	for _, s := range c.sides()[:2] {
		for _, r := range s.records {
			// One that is on both sides stands there once.
			if !slices.ContainsFunc(records, func(n report.Named) bool { return n.Name == r.Name }) {
				records = append(records, report.Named{Name: r.Name, Record: r.Record, Dir: filepath.Dir(o.env.path(filepath.FromSlash(r.Name)))})
			}
		}
	}
	extra := page.Extra{Title: "trbench compare: " + judged.Verdict, Comparison: page.Judged(judged)}
	return o.env.writePage(o.env.Stderr, o.html, records, extra)
}

// files divides a side at commas, unless a file is called so.
func (o *compareOptions) files(arg string) []string {
	if _, err := os.Stat(o.env.path(arg)); err == nil {
		return []string{arg}
	}
	return strings.Split(arg, ",")
}

// read reads a side's records. They are called by their files' names, in full
// where those of several are the same.
func (o *compareOptions) read(files []string) ([]guard.Named, error) {
	var list []guard.Named
	for _, f := range files {
		if f == "" {
			return nil, &bench.InputError{Name: "BASE and HEAD", Reason: "have an empty name: " + strings.Join(files, ",")}
		}
		r, err := results.ReadFile(o.env.path(f))
		if err != nil {
			return nil, err
		}
		list = append(list, guard.Named{Name: filepath.ToSlash(f), Record: r})
	}
	return list, nil
}

// explained prints the rows that --explain names: the one of that name, else
// all with it in theirs.
func (o *compareOptions) explained(c *results.Comparison) error {
	var rows []results.RowVerdict
	for _, v := range c.Rows {
		switch name := v.Row.String(); {
		case name == o.explain:
			return report.Explain(o.env.Stdout, []results.RowVerdict{v})
		case strings.Contains(name, o.explain):
			rows = append(rows, v)
		}
	}
	if len(rows) > 0 {
		return report.Explain(o.env.Stdout, rows)
	}
	for _, k := range slices.Concat(c.OnlyBase, c.OnlyHead) {
		if strings.Contains(k.String(), o.explain) {
			return &bench.InputError{Name: "--explain", Reason: fmt.Sprintf("names %s, which one side lacks, so it is not judged", k)}
		}
	}
	return &bench.InputError{Name: "--explain", Reason: fmt.Sprintf("%q is in no row's name", o.explain), Hint: "such as " + c.Rows[0].Row.String()}
}

// verdictError makes the exit code of a comparison's verdict.
func verdictError(c *results.Comparison) error {
	switch c.Verdict {
	case results.Slower, results.Ambiguous:
		return &judgedError{c}
	}
	return nil
}

// judgedError is a comparison that did not end well.
type judgedError struct{ c *results.Comparison }

func (e *judgedError) Error() string { return report.VerdictLine(e.c) }

// code is 1 for what was found twice alone: measured once, a bad moment looks the
// same.
func (e *judgedError) code() int {
	if e.c.Verdict == results.Slower && e.c.Confirmed {
		return exitFailure
	}
	return exitInconclusive
}

// hint is the first thing to do.
func (e *judgedError) hint() string {
	steps := report.NextSteps(e.c)
	switch {
	case e.c.Verdict == results.Slower && !e.c.Confirmed:
		return fmt.Sprintf("measure both sides again, in %d fresh processes each at another time, and give those records as --confirm-base and --confirm-head", guard.ConfirmProcesses)
	case len(steps) > 0:
		return steps[0]
	}
	return ""
}

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

type baselineOptions struct {
	env *Env
	dir string
	why string
}

func newBaselineCmd(env *Env) *cobra.Command {
	o := &baselineOptions{env: env}
	cmd := &cobra.Command{
		Use:   "baseline",
		Short: "pin the runs that nightly compares with",
		Long: `baseline says which runs are the baseline of trbench nightly: nights, or records
of trbench run. Each is a run of base, so several show how much a run's median
moves by itself; five of 8 processes each are a good set. Who pinned or dropped
what, when and why, stays on record, and a pinned record is never thinned.`,
		Example: `  trbench baseline pin last --why="release 1.4"
  trbench baseline list
  trbench baseline drop night-1 --why="driver updated"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", defaultHistory, "the history's folder")
	one := func(use, short string, run func(s *history.Store, name string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short}
		c.Flags().StringVar(&o.why, "why", "", "the reason")
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{text: fmt.Sprintf("%s takes one name, not %d", c.Name(), len(args)), hint: c.CommandPath() + " --help"}
			}
			if o.why == "" {
				return &bench.InputError{Name: "--why", Reason: "is missing: who reads this later will want to know"}
			}
			return o.with(c.Name() == "pin", func(s *history.Store) error { return run(s, args[0]) })
		}
		return c
	}
	cmd.AddCommand(one("pin NIGHT|RECORD", "add a night (a number, or last) or a record's file to the baseline", o.pin), one("drop NAME", "take a pin out of the baseline", o.drop),
		&cobra.Command{Use: "list", Short: "list the baseline", Args: noArgs, RunE: func(*cobra.Command, []string) error { return o.with(false, o.list) }})
	return cmd
}

func (o *baselineOptions) with(create bool, do func(*history.Store) error) error {
	s, err := history.Open(o.env.path(o.dir), create)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	err = do(s)
	var input *bench.InputError
	if err != nil && !errors.As(err, &input) {
		err = historyProblem(o.dir, err)
	}
	return errors.Join(err, s.Close())
}

func (o *baselineOptions) pin(s *history.Store, name string) error {
	p := history.Pin{Name: name, Who: o.env.who(), Why: o.why, When: o.env.Now().UTC()}
	nights, err := s.List()
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return &bench.InputError{Name: "baseline " + name, Reason: fmt.Sprintf(format, args...)}
	}
	number, notNumber := strconv.Atoi(name)
	var r *results.Record
	switch {
	case name == "last" && len(nights) == 0:
		return refuse("is no night: there is none yet")
	case name == "last" || notNumber == nil:
		i := len(nights) - 1
		if name != "last" {
			if i = slices.IndexFunc(nights, func(b history.Brief) bool { return b.Sequence == number }); i < 0 {
				return refuse("is no night of the history")
			}
		}
		at := slices.IndexFunc(nights[i].Records, func(k history.Kept) bool { return k.Role == "head" })
		if at < 0 {
			return refuse("is a night without a record")
		}
		p.Name, p.Record = fmt.Sprintf("night-%d", nights[i].Sequence), nights[i].Records[at]
		if r, err = s.Record(p.Record); err != nil {
			return refuse("cannot be pinned: %v", err)
		}
	default:
		if r, err = results.ReadFile(o.env.path(name)); err != nil {
			return refuse("is neither a night nor a record: %v", err)
		}
		p.Name = filepath.Base(name)
	}
	switch {
	case r.Status != results.Complete || anyFailed(r):
		return refuse("is not complete")
	case r.Plan != nil && r.Plan.Inject != nil:
		return refuse("was slowed on purpose")
	}
	for i := range r.Cells {
		if !r.Cells[i].Verify.Equal {
			return refuse("has modes that were not found equal")
		}
	}
	if p.Record.File == "" {
		if p.Record, err = s.Keep("pinned", r); err != nil {
			return err
		}
	}
	if err := s.Pin(p); err != nil {
		var full *history.FullError
		if errors.As(err, &full) {
			return err
		}
		return refuse("%v", err)
	}
	out := &printer{w: o.env.Stdout}
	out.linef("%s is pinned", p.Name)
	return out.err
}

func (o *baselineOptions) drop(s *history.Store, name string) error {
	if err := s.Drop(name, o.env.who(), o.why, o.env.Now().UTC()); err != nil {
		var full *history.FullError
		if errors.As(err, &full) {
			return err
		}
		return &bench.InputError{Name: "baseline " + name, Reason: err.Error(), Hint: "trbench baseline list"}
	}
	out := &printer{w: o.env.Stdout}
	out.linef("%s is dropped", name)
	return out.err
}

func (o *baselineOptions) list(s *history.Store) error {
	pins, err := s.Pins()
	if err != nil {
		return err
	}
	if len(pins) == 0 {
		_, err := fmt.Fprintln(o.env.Stdout, "Nothing is pinned.")
		return err
	}
	g := report.Grid{Header: []string{"name", "pinned", "by", "why", "record"}, Left: 5}
	for _, p := range pins {
		g.Rows = append(g.Rows, []string{p.Name, p.When.Format(time.DateOnly), p.Who, p.Why, p.Record.File})
	}
	return g.Write(o.env.Stdout)
}

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
	env     *Env
	dir     string
	why     string
	program string
}

// noProgram is --program's word for pinning without one.
const noProgram = "none"

func newBaselineCmd(env *Env) *cobra.Command {
	o := &baselineOptions{env: env}
	cmd := &cobra.Command{
		Use:   "baseline",
		Short: "pin the runs that nightly compares with",
		Long: `baseline says which runs are the baseline of trbench nightly: nights, or records
of trbench run. Each is a run of base, so several show how much a run's median
moves by itself; five of 8 processes each are a good set. Who pinned or dropped
what, when and why, stays on record, and a pinned record is never thinned.

With a record, pin keeps a copy of the program that made it, once for all pins
that have it: nightly measures base again by it, beside head, before it fails a
night. That is this program, if it made the record, or the one that --program
names; --program=none keeps none. The copy goes when the last pin that has it
was dropped.`,
		Example: `  trbench baseline pin last --why="release 1.4"
  trbench baseline pin 12 --program=bin/trbench-1.4 --why="release 1.4"
  trbench baseline list
  trbench baseline drop night-1 --why="driver updated"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", defaultHistory, "the history's folder")
	one := func(use, short string, run func(name string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short}
		c.Flags().StringVar(&o.why, "why", "", "the reason")
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{text: fmt.Sprintf("%s takes one name, not %d", c.Name(), len(args)), hint: c.CommandPath() + " --help"}
			}
			if o.why == "" {
				return &bench.InputError{Name: "--why", Reason: "is missing: who reads this later will want to know"}
			}
			return run(args[0])
		}
		return c
	}
	pin := one("pin NIGHT|RECORD", "add a night (a number, or last) or a record's file to the baseline", o.pin)
	pin.Flags().StringVar(&o.program, "program", "", "the trbench that made the record, to be kept with it; none keeps none (default this program, if it is the one)")
	cmd.AddCommand(pin, one("drop NAME", "take a pin out of the baseline", o.drop),
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

// pin makes a history only for a record that can be pinned: one made for nothing
// would later look like one without nights.
func (o *baselineOptions) pin(name string) error {
	if _, err := strconv.Atoi(name); err == nil || name == "last" {
		return o.with(false, func(s *history.Store) error { return o.pinNight(s, name) })
	}
	r, err := results.ReadFile(o.env.path(name))
	if err != nil {
		return refusePin(name, "trbench history lists the nights", "is neither a night nor a record: %v", err)
	}
	if why := unfit(r); why != "" {
		return refusePin(name, "", "%s", why)
	}
	return o.with(true, func(s *history.Store) error {
		return o.keepPin(s, name, r, history.Pin{Name: filepath.Base(name)})
	})
}

func (o *baselineOptions) pinNight(s *history.Store, name string) error {
	nights, err := s.List()
	if err != nil {
		return err
	}
	i := len(nights) - 1
	if name != "last" {
		i = slices.IndexFunc(nights, func(b history.Brief) bool { return strconv.Itoa(b.Sequence) == name })
	}
	switch {
	case len(nights) == 0:
		return refusePin(name, "trbench nightly measures one; --dir says where its history is", "is no night: there is none yet")
	case i < 0:
		return refusePin(name, "trbench history lists them", "is no night of the history")
	}
	at := slices.IndexFunc(nights[i].Records, func(k history.Kept) bool { return k.Role == "head" })
	if at < 0 {
		return refusePin(name, "trbench history lists others", "is a night without a record")
	}
	p := history.Pin{Name: fmt.Sprintf("night-%d", nights[i].Sequence), Record: nights[i].Records[at]}
	r, err := s.Record(p.Record)
	if err != nil {
		return refusePin(name, "", "cannot be pinned: %v", err)
	}
	if why := unfit(r); why != "" {
		return refusePin(name, "", "%s", why)
	}
	return o.keepPin(s, name, r, p)
}

// keepPin stores a pin, with its record if it is not kept yet, and with the
// record's program if that is at hand, and says so.
func (o *baselineOptions) keepPin(s *history.Store, name string, r *results.Record, p history.Pin) error {
	p.Who, p.Why, p.When = o.env.who(), o.why, o.env.Now().UTC()
	without := ""
	err := s.Pin(p, func(p *history.Pin) (err error) {
		if p.Record.File == "" {
			if p.Record, err = s.Keep("pinned", r); err != nil {
				return err
			}
		}
		p.Program, without, err = o.keepProgram(s, r)
		return err
	})
	if err != nil {
		var full *history.FullError
		var damaged *history.DamagedError
		if errors.As(err, &full) || errors.As(err, &damaged) {
			return err
		}
		return refusePin(name, "", "%v", err)
	}
	out := &printer{w: o.env.Stdout}
	if without == "" {
		out.linef("%s is pinned, with its program", p.Name)
		return out.err
	}
	out.linef("%s is pinned, without its program: %s", p.Name, without)
	if o.program != noProgram {
		out.linef("Base cannot be measured again by it, and a slower night cannot be confirmed, unless another pin has a program or nightly's configuration a base_command.")
	}
	return out.err
}

// keepProgram keeps the program that made a record; without says why there is
// none.
func (o *baselineOptions) keepProgram(s *history.Store, r *results.Record) (kept *history.Kept, without string, err error) {
	made := r.Program.Executable
	switch {
	case o.program == noProgram:
		return nil, "--program=none", nil
	case made == "" && o.program != "":
		return nil, "", errors.New("does not say which program made it, so that none can be kept with it: pin it without --program")
	case made == "":
		return nil, "the record does not say which made it", nil
	}
	file := o.env.Executable
	if o.program != "" {
		file = o.env.path(o.program)
	}
	sum, err := fileHash(file)
	switch {
	case o.program != "" && err != nil:
		return nil, "", fmt.Errorf("cannot be pinned with --program=%s: %w", o.program, unwrapPath(err))
	case sum == made:
		k, err := s.KeepProgram(file, sum)
		var full *history.FullError
		switch {
		case errors.As(err, &full):
			return nil, "", err
		case err != nil:
			return nil, "", fmt.Errorf("cannot be pinned with its program: %w; --program=none pins it without", unwrapPath(err))
		}
		return &k, "", nil
	case o.program != "":
		return nil, "", fmt.Errorf("was made by the program with SHA-256 %s, and --program=%s has %s", made, o.program, sum)
	}
	pins, err := s.Pins()
	if err != nil {
		return nil, "", err
	}
	for _, p := range pins {
		if p.Program != nil && p.Program.SHA256 == made {
			return p.Program, "", nil
		}
	}
	return nil, fmt.Sprintf("trbench %s made it, and this is another build; --program=FILE names that one", describe(r.Program)), nil
}

func refusePin(name, hint, format string, args ...any) error {
	return &bench.InputError{Name: "baseline " + name, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// unfit says why a record cannot be a run of base; empty if it can.
func unfit(r *results.Record) string {
	switch {
	case r.Status != results.Complete || anyFailed(r):
		return "is not complete"
	case r.Plan != nil && r.Plan.Inject != nil:
		return "was slowed on purpose"
	case slices.ContainsFunc(r.Cells, func(c results.Cell) bool { return !c.Verify.Equal }):
		return "has modes that were not found equal"
	}
	return ""
}

func (o *baselineOptions) drop(name string) error {
	return o.with(false, func(s *history.Store) error {
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
	})
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
	g := report.Grid{Header: []string{"name", "pinned", "by", "why", "record", "program"}, Left: 6}
	for _, p := range pins {
		program := "-"
		if p.Program != nil {
			program = p.Program.File
		}
		g.Rows = append(g.Rows, []string{p.Name, p.When.Format(time.DateOnly), p.Who, p.Why, p.Record.File, program})
	}
	return g.Write(o.env.Stdout)
}

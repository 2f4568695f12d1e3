package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// defaultHistory is where nightly keeps its history unless told otherwise.
var defaultHistory = filepath.Join("results", "nightly")

type historyOptions struct {
	env   *Env
	dir   string
	row   string
	last  counts
	json  bool
	csv   bool
	plots string
}

func newHistoryCmd(env *Env) *cobra.Command {
	o := &historyOptions{env: env, last: counts{min: 1, max: 1}}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "list nights, find when a row changed its level, draw trends",
		Long: fmt.Sprintf(`history shows what trbench nightly kept: the nights with their verdicts, change
points of every row, and the guard's error rates as its sentinel found them. The
files of the history are the truth, and all of them are checked each time: one
that was cut, edited, copied or renamed is named, and the exit code is 2. An
index that is lost or damaged is made anew.

A change point is where the level of a row changes by more than chance explains
(E-divisive in windows of %d nights, p below %g by Student's test). One of the
last %d nights is provisional, as a single bad night looks the same; one of less
than %g %% is small, and nobody has to look at it. ack acknowledges one until a
day.

--row narrows it to rows whose name has a text in it, and --json then has every
process. --plots draws each row as PNG and SVG into a folder.`, history.Window, history.MaxP, history.Tail, 100*results.LeastEffect),
		Example: `  trbench history
  trbench history --row=submit_time_ns --plots=trends
  trbench history --row=eager/event --json
  trbench history --csv
  trbench history reindex`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", defaultHistory, "the history's folder")
	f := cmd.Flags()
	f.StringVar(&o.row, "row", "", "only rows whose name has this in it")
	f.Var(&o.last, "last", "how many nights to list (default 20; --json and --csv have all)")
	f.BoolVar(&o.json, "json", false, "print everything as JSON")
	f.BoolVar(&o.csv, "csv", false, "print every point as CSV")
	f.StringVar(&o.plots, "plots", "", "draw trends into this folder")
	cmd.AddCommand(newReindexCmd(o), newAckCmd(o))
	return cmd
}

func newReindexCmd(o *historyOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "reindex",
		Short: "make the history's index anew from its files",
		Long: `reindex makes the index anew from the files, which are the truth. It takes what
is there for all there is: nights that the old index knew and whose files are
gone are forgotten, and the gap is listed from then on.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := history.Reindex(o.env.path(o.dir))
			if err != nil {
				return historyProblem(o.dir, err)
			}
			out := &printer{w: o.env.Stdout}
			out.linef("%s indexed", count(s.Nights(), "night"))
			for _, m := range s.Missing {
				out.linef("%s", m)
			}
			return errors.Join(out.err, s.Close())
		},
	}
}

func newAckCmd(o *historyOptions) *cobra.Command {
	var until, why string
	cmd := &cobra.Command{
		Use:   "ack ID",
		Short: "acknowledge a change point until a day",
		Long: `ack says that a change point is known and accepted: until the day given it is
listed as acknowledged, with who said so and why, and after it as expired.`,
		Example: `  trbench history ack 5ab00cd1e3 --until=2027-03-31 --why="driver 590, accepted"`,
	}
	cmd.Flags().StringVar(&until, "until", "", "the last day, as 2027-03-31")
	cmd.Flags().StringVar(&why, "why", "", "the reason")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &usageError{text: fmt.Sprintf("ack takes the id of one change point, not %d", len(args)), hint: "trbench history lists them"}
		}
		day, err := time.Parse(time.DateOnly, until)
		switch {
		case err != nil:
			return &bench.InputError{Name: "--until", Reason: fmt.Sprintf("%q is no day", until), Hint: "such as --until=2027-03-31"}
		case why == "":
			return &bench.InputError{Name: "--why", Reason: "is missing: an acknowledgement without a reason helps nobody"}
		}
		return o.acknowledge(args[0], day.AddDate(0, 0, 1), why)
	}
	return cmd
}

// historyProblem makes an error of a history one of input.
func historyProblem(dir string, err error) error {
	var damaged *history.DamagedError
	var full *history.FullError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &damaged):
		text := damaged.Problems[0]
		if n := len(damaged.Problems) - 1; n > 0 {
			text += fmt.Sprintf(" (and %d more)", n)
		}
		return &bench.InputError{
			Name: "history " + dir, Reason: "is damaged: " + text,
			Hint: damaged.Remedy,
		}
	case errors.As(err, &full):
		return &bench.InputError{Name: "history " + dir, Reason: full.Error(), Hint: "nothing that was there is changed"}
	case errors.Is(err, fs.ErrNotExist):
		return &bench.InputError{Name: "history " + dir, Reason: "is not there", Hint: "trbench nightly makes one; --dir says where it is"}
	}
	return &bench.InputError{Name: "history " + dir, Reason: "cannot be used: " + err.Error()}
}

func (o *historyOptions) run() error {
	if o.json && o.csv {
		return &bench.InputError{Name: "--json and --csv", Reason: "go to the same place; choose one"}
	}
	s, err := history.Open(o.env.path(o.dir), false)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	defer s.Close()
	if s.Rebuilt != "" {
		fmt.Fprintf(o.env.Stderr, "the history's index was made anew: %s\n", s.Rebuilt)
	}
	view, err := o.view(s)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	if o.row != "" && len(view.Series) == 0 {
		return &bench.InputError{Name: "--row", Reason: fmt.Sprintf("%q is in no row's name", o.row), Hint: "trbench history --csv has all rows"}
	}
	if o.plots != "" {
		if err := o.draw(view); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return view.asJSON(o.env)
	case o.csv:
		return view.asCSV(o.env)
	case o.plots != "":
		return nil
	}
	return o.text(view)
}

// historyView is all that history shows.
type historyView struct {
	Schema  results.Schema   `json:"schema"`
	Missing []string         `json:"missing"`
	Nights  []history.Brief  `json:"nights"`
	Rates   history.Rates    `json:"rates"`
	Changes []results.Change `json:"changes"`
	Series  []results.Series `json:"series"`
}

func (o *historyOptions) view(s *history.Store) (*historyView, error) {
	v := &historyView{Schema: results.Schema{Name: "trbench.history", Major: 1}, Missing: append([]string{}, s.Missing...)}
	keep := func(k results.RowKey) bool { return strings.Contains(k.String(), o.row) }
	var err error
	if v.Nights, err = s.List(); err != nil {
		return nil, err
	}
	if v.Series, err = s.Series(keep, o.json && o.row != ""); err != nil {
		return nil, err
	}
	if v.Rates, err = s.Rates(); err != nil {
		return nil, err
	}
	v.Changes, err = s.Standing(v.Series, o.env.Now())
	return v, err
}

func (v *historyView) asJSON(env *Env) error {
	e := json.NewEncoder(env.Stdout)
	e.SetIndent("", " ")
	return e.Encode(v)
}

func (v *historyView) asCSV(env *Env) error {
	w := csv.NewWriter(env.Stdout)
	_ = w.Write([]string{"row", "unit", "night", "began", "value"}) // Flush says
	for _, s := range v.Series {
		for _, p := range s.Points {
			_ = w.Write([]string{s.Row.String(), s.Unit, strconv.Itoa(p.Sequence), p.Created.Format(time.RFC3339), strconv.FormatFloat(p.Value, 'g', -1, 64)})
		}
	}
	w.Flush()
	return w.Error()
}

// draw writes a picture a row and says where.
func (o *historyOptions) draw(v *historyView) error {
	dir := o.env.path(o.plots)
	out := &printer{w: o.env.Stdout}
	if o.json || o.csv {
		out.w = o.env.Stderr
	}
	var pictures []report.Picture
	for i, s := range v.Series {
		var changes []results.Change
		for _, c := range v.Changes {
			if c.Row == s.Row {
				changes = append(changes, c)
			}
		}
		p, why := report.Trend(s, changes, report.About{Name: fmt.Sprintf("trend_%03d_%s", i+1, s.Row.Metric)})
		if why != "" {
			out.linef("not drawn: %s", why)
			continue
		}
		pictures = append(pictures, p)
	}
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		var files []string
		if files, err = report.Save(dir, []string{report.PNG, report.SVG}, pictures); err == nil {
			for _, f := range files {
				out.linef("%s", o.env.short(f))
			}
			return out.err
		}
	}
	return &bench.InputError{Name: "--plots " + o.plots, Reason: "cannot be written: " + err.Error()}
}

const listedNights = 20

func (o *historyOptions) text(v *historyView) error {
	w := o.env.Stdout
	out := &printer{w: w}
	last := listedNights
	if o.last.values != nil {
		last = o.last.first()
	}
	if len(v.Nights) == 0 {
		// No table without lines, and nothing about rows, of which there are none.
		out.linef("No night is kept in %s: trbench nightly adds one, and --dir names another history.", o.dir)
		for _, m := range v.Missing {
			out.linef("Missing: %s", m)
		}
		return out.err
	}
	nights := v.Nights[max(0, len(v.Nights)-last):]
	if len(nights) < len(v.Nights) {
		out.linef("The last %d of %s; --last=N lists more.", len(nights), count(len(v.Nights), "night"))
	}
	if err := errors.Join(out.err, nightsGrid(nights).Write(w)); err != nil {
		return err
	}
	for _, m := range v.Missing {
		out.linef("Missing: %s", m)
	}
	if len(v.Changes) == 0 {
		out.linef("\nNo row changed its level.")
	} else {
		out.linef("\nChange points")
		if err := errors.Join(out.err, changesGrid(v.Changes).Write(w)); err != nil {
			return err
		}
	}
	if n := v.Rates.FalseFinal.N; n > 0 {
		out.linef("\nThe guard, by its sentinel on %s", count(n, "night"))
		for _, line := range rateLines(v.Rates) {
			out.linef("  %s", line)
		}
	}
	return out.err
}

// nightsGrid lists nights, the last one first.
func nightsGrid(nights []history.Brief) report.Grid {
	g := report.Grid{Header: []string{"night", "began", "verdict", "slower rows", "revision", "remarks"}, Left: 0, LeftEnd: 1}
	for _, n := range slices.Backward(nights) {
		var remarks []string
		if len(n.LeftOut) > 0 {
			remarks = append(remarks, count(len(n.LeftOut), "part")+" left out")
		}
		for _, x := range n.Warnings {
			remarks = append(remarks, x.Code)
		}
		verdict := n.Verdict
		if verdict == "" {
			verdict = "-"
		}
		g.Rows = append(g.Rows, []string{strconv.Itoa(n.Sequence), n.Began.Format("2006-01-02 15:04"), verdict, strconv.Itoa(len(n.Slower)),
			n.Revision[:min(12, len(n.Revision))], strings.Join(remarks, ", ")})
	}
	return g
}

func changesGrid(changes []results.Change) report.Grid {
	g := report.Grid{Header: []string{"id", "night", "change", "p", "state", "row"}, Left: 1, LeftEnd: 2}
	for _, c := range changes {
		state := c.State
		if a := c.Acknowledgement; a != nil {
			state += fmt.Sprintf(" until %s by %s: %s", a.LastDay(), a.Who, a.Why)
		}
		g.Rows = append(g.Rows, []string{c.ID, strconv.Itoa(c.Night), report.ChangeOf(c.After / c.Before), fmt.Sprintf("%.1g", c.P), state, c.Row.String()})
	}
	return g
}

// rateLines are the guard's error rates in sentences.
func rateLines(r history.Rates) []string {
	say := func(what string, first, final history.Rate) string {
		return fmt.Sprintf("%s: %d of %d at first (95 %%: %s), %d confirmed (95 %%: %s)", what, first.Hits, first.N, spanOf(first), final.Hits, spanOf(final))
	}
	return []string{
		say("nothing changed, called slower", r.FalseFirst, r.FalseFinal),
		say("slowed on purpose, called slower", r.CaughtFirst, r.CaughtFinal),
	}
}

func spanOf(r history.Rate) string { return fmt.Sprintf("%.1f to %.1f %%", 100*r.Low, 100*r.High) }

func (o *historyOptions) acknowledge(id string, until time.Time, why string) error {
	s, err := history.Open(o.env.path(o.dir), false)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	defer s.Close()
	series, err := s.Series(nil, false)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	now := o.env.Now().UTC()
	changes, err := s.Standing(series, now)
	if err != nil {
		return historyProblem(o.dir, err)
	}
	i := slices.IndexFunc(changes, func(c results.Change) bool { return c.ID == id })
	switch {
	case i < 0:
		return &bench.InputError{Name: "change point " + id, Reason: "is not there", Hint: "trbench history lists them"}
	case changes[i].Provisional:
		return &bench.InputError{Name: "change point " + id, Reason: fmt.Sprintf("is provisional: it may be gone when %d more nights are in", history.Tail), Hint: "acknowledge it then"}
	case !until.After(now):
		return &bench.InputError{Name: "--until", Reason: "is in the past"}
	}
	if err := s.Acknowledge(results.Acknowledgement{ID: id, Until: until, Who: o.env.who(), Why: why, When: now}); err != nil {
		return historyProblem(o.dir, err)
	}
	out := &printer{w: o.env.Stdout}
	out.linef("%s is acknowledged until %s: %s", id, until.AddDate(0, 0, -1).Format(time.DateOnly), changes[i].Row)
	return out.err
}

// who is the user, as the system knows them.
func (env *Env) who() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := env.variable("USER"); name != "" {
		return name
	}
	return "unknown"
}

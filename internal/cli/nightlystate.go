package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// begin goes on with the night that is under way, or begins one.
func (n *nightly) begin() error {
	self := n.env.identity()
	b, err := readState(n.tonight("state.json"))
	if err == nil {
		if err := json.Unmarshal(b, &n.state); err != nil || n.state.ID == "" || n.state.Began.IsZero() {
			return &bench.InputError{Name: n.env.short(n.tonight("state.json")), Reason: "is no state of a night", Hint: n.takeAway()}
		}
		why := ""
		switch age := n.begun.Sub(n.state.Began); {
		case !self.Equal(n.state.Program):
			why = "it was begun by " + unlike(n.state.Program, self)
		case n.config.text != n.state.Config:
			why = "it was begun with another configuration"
		case age > oldest:
			why = "it was begun " + n.state.Began.Format(time.RFC3339)
		}
		if why == "" {
			n.pins = n.state.Pins
			fmt.Fprintf(n.env.Stderr, "going on with the night that began %s\n", n.state.Began.Format(time.RFC3339))
			if n.begun.Before(n.state.Began) {
				n.warn("clock_jumped_back", fmt.Sprintf("the clock says %s, and the night began %s; its deadline begins anew", n.begun.UTC().Format(time.RFC3339), n.state.Began.Format(time.RFC3339)))
			}
			return nil
		}
		if err := n.abandon(why); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return &bench.InputError{Name: n.env.short(n.tonight("state.json")), Reason: "cannot be read: " + unwrapPath(err).Error()}
	}
	if err := n.clear(); err != nil { // what a night left that ended
		return err
	}
	if n.pins, err = n.store.Pins(); err != nil {
		return err
	}
	n.state = nightState{ID: history.NewID(), Began: n.begun.UTC(), Program: self, Config: n.config.text, Pins: n.pins, LeftOut: map[string]string{}}
	return n.save()
}

// readState reads a state's file, and waits for nobody who writes a pipe.
func readState(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// readPins reads the baseline: what is wrong with it is to be known before hours
// of measuring.
func (n *nightly) readPins() error {
	for _, p := range n.pins {
		r, err := n.store.Record(p.Record)
		if err != nil {
			return n.badPin(p, err)
		}
		n.base = append(n.base, guard.Named{Name: p.Name, Record: r})
	}
	if err := n.findProgram(); err != nil {
		return err
	}
	return n.checkProcesses()
}

func (n *nightly) badPin(p history.Pin, err error) error {
	var damaged *history.DamagedError
	if errors.As(err, &damaged) {
		err = errors.New(damaged.Problems[0])
	}
	return &bench.InputError{Name: "pin " + p.Name, Reason: "cannot be used: " + err.Error(),
		Hint: fmt.Sprintf("put the file back, or take the pin out: trbench baseline drop %s --dir=%s --why=TEXT", p.Name, n.env.short(n.config.History))}
}

// baseProgram is what measures base again.
type baseProgram struct {
	path string // empty for none
	// pin is whose program it is, and record what that was pinned for; empty and
	// nil where the configuration names the program.
	pin    string
	record *results.Record
}

// findProgram is base_command, or the program of the latest pin that has one:
// of programs that were found to be good the one nearest to head.
func (n *nightly) findProgram() error {
	if n.config.BaseCommand != "" {
		n.program.path = n.config.BaseCommand
		return nil
	}
	for i, p := range slices.Backward(n.pins) {
		if p.Program == nil {
			continue
		}
		path, err := n.store.Program(*p.Program)
		if err != nil {
			return n.badPin(p, err)
		}
		n.program = baseProgram{path, p.Name, n.base[i].Record}
		return nil
	}
	if len(n.pins) > 0 {
		fmt.Fprintln(n.env.Stderr, "no pin has its program, and there is no base_command: base cannot be measured again, so that a slower row ends the night without a verdict (3)")
	}
	return nil
}

// checkProcesses finds, before hours of measuring, that so few processes cannot
// tell of any row; without a baseline it says what such nights could tell.
func (n *nightly) checkProcesses() error {
	o := guard.DefaultOptions()
	perNight := n.plan.Processes
	if len(n.base) == 0 {
		rows := len(n.plan.Cells) * len(n.plan.Configurations) * len(results.Gated())
		if _, least := guard.Need(perNight, perNight, rows, o); least > perNight {
			fmt.Fprintf(n.env.Stderr, "%s a night cannot judge %s against one pinned night of as many: %d can\n", processes(perNight), count(rows, "row"), least)
		}
		return nil
	}
	g, err := guard.Gather(n.base, n.base)
	if err != nil {
		return &bench.InputError{Name: "the baseline", Reason: "cannot be used: " + err.Error(), Hint: "trbench baseline drop takes a pin out"}
	}
	var base []int
	for _, r := range g.Rows {
		if slices.Contains(n.plan.Cells, r.Key.Cell) && slices.Contains(n.plan.Configurations, r.Key.Configuration) {
			base = append(base, len(slices.Concat(r.Base...)))
		}
	}
	can := func(base, head, rows int) bool {
		b, h := guard.Need(base, head, rows, o)
		return b == base && h == head
	}
	if len(base) == 0 || slices.ContainsFunc(base, func(b int) bool { return can(b, perNight, len(base)) }) {
		return nil
	}
	most := slices.Max(base)
	reason := fmt.Sprintf("%s a night cannot judge %s against the %d of the baseline", processes(perNight), count(len(base), "row"), most)
	_, both := guard.Need(perNight, perNight, len(base), o)
	hint := fmt.Sprintf("pin nights of at least %d", both)
	for head := perNight; head <= bench.MaxProcesses; head++ {
		if can(most, head, len(base)) {
			hint = fmt.Sprintf("--processes=%d in run is enough against these pins; or drop them, and pin nights of at least %d", head, both)
			break
		}
	}
	return &bench.InputError{Name: "--config: run:", Reason: reason, Hint: hint}
}

func (n *nightly) save() error {
	b, err := json.Marshal(n.state)
	if err != nil {
		return err
	}
	path := n.tonight("state.json")
	if err := report.WriteFile(path, func(w io.Writer) error { _, err := w.Write(b); return err }); err != nil {
		return &history.FullError{Path: path, Err: err}
	}
	return nil
}

// clear empties tonight/; the state goes first, so that half of it is no
// night.
func (n *nightly) clear() error {
	for _, name := range []string{"state.json", "*.json", "*" + traceSuffix, "*.lock", ".*.tmp", ".state.json.*"} {
		files, err := filepath.Glob(n.tonight(name))
		if err != nil {
			return err
		}
		for _, f := range files {
			if filepath.Base(f) == ".night.lock" {
				continue // held
			}
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("clear away the night: %w", err)
			}
		}
	}
	return nil
}

func (n *nightly) warn(code, text string) {
	n.warnings = append(n.warnings, results.Warning{Code: code, Text: text})
	fmt.Fprintf(n.env.Stderr, "warning: %s [%s]\n", text, code)
}

// left is what remains until the deadline.
func (n *nightly) left() (time.Duration, bool) {
	if n.config.deadline == 0 {
		return 0, false
	}
	spent := n.env.Now().Sub(n.begun) // monotonic
	if before := n.begun.Sub(n.state.Began); before > 0 {
		spent += before
	}
	return n.config.deadline - spent, true
}

// leaveOut keeps that there was no time for something.
func (n *nightly) leaveOut(what, text string) error {
	if n.state.LeftOut == nil {
		n.state.LeftOut = map[string]string{}
	}
	n.state.LeftOut[what] = text
	return n.save()
}

func (n *nightly) omitted(what string) bool { return n.state.LeftOut[what] != "" }

// abandon puts a night that cannot be gone on with into the history, with what
// it measured.
func (n *nightly) abandon(why string) error {
	switch stored, err := n.store.Has(n.state.ID); {
	case err != nil:
		return err
	case stored: // it ended, but for its page
		fmt.Fprintf(n.env.Stderr, "the night that began %s is stored; its page was not made: %s\n", n.state.Began.Format(time.RFC3339), why)
		return nil
	}
	fmt.Fprintf(n.env.Stderr, "the night that began %s is abandoned: %s\n", n.state.Began.Format(time.RFC3339), why)
	night := &history.Night{ID: n.state.ID, Began: n.state.Began, Ended: n.begun.UTC(), Program: n.state.Program, Line: "abandoned: " + why,
		Warnings: []results.Warning{{Code: "abandoned", Text: "the night was not ended: " + why}}}
	r, err := (&measurement{file: n.tonight("head.json")}).record()
	if err != nil {
		return err
	}
	if r != nil {
		if night.Records, err = n.keepTimelines(r, nil); err != nil {
			return err
		}
		k, err := n.store.Keep("head", r)
		if err != nil {
			return err
		}
		night.Records = append(night.Records, k)
	}
	return n.append(night)
}

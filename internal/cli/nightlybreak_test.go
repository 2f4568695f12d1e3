package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
)

// What lies in the folder of a night under way and is damaged is named, with what
// to do; nothing is counted that cannot be read.
func TestTonightIsDamaged(t *testing.T) {
	for name, test := range map[string]struct {
		file, text string
		want       string
	}{
		"no state":     {"state.json", "garbage", "results/nightly/tonight/state.json is no state of a night"},
		"half a state": {"state.json", `{"id":"abc"}`, "results/nightly/tonight/state.json is no state of a night"},
		"no record":    {"head.json", "garbage", "results/nightly/tonight/head.json"},
		"empty record": {"head.json", "", "results/nightly/tonight/head.json"},
	} {
		g := newGuarded(t, guardedConfig)
		ctx, cancel := context.WithCancel(t.Context())
		g.before = func(bench.CellRequest) error {
			if g.cells == 5 {
				cancel()
			}
			return nil
		}
		g.call(ctx, "nightly", "--config=nightly.yaml")
		g.before = nil
		if err := os.WriteFile(filepath.Join(g.dir, defaultHistory, "tonight", test.file), []byte(test.text), 0o666); err != nil {
			t.Fatal(err)
		}
		g.night(exitUsage)
		g.has(g.stderr, test.want, "hint: take results/nightly/tonight away to begin a new night\n")
		if len(g.briefs()) != 0 {
			t.Errorf("%s: a night was stored", name)
		}
		if err := os.RemoveAll(filepath.Join(g.dir, defaultHistory, "tonight")); err != nil {
			t.Fatal(err)
		}
		g.night(exitInconclusive)
	}
}

// A base_command that ends well and writes nothing, or ends badly, is named.
func TestBaseCommandIsNone(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":                 "left no record",
		"echo sorry >&2; exit 2": "ended without success (exit status 2)",
		"kill -9 $$":             "ended without success (signal: killed)",
	} {
		g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\nbase_command: base.sh\n")
		if err := os.WriteFile(filepath.Join(g.dir, "base.sh"), []byte("#!/bin/sh\n"+script+"\n"), 0o777); err != nil {
			t.Fatal(err)
		}
		g.base()
		g.level = onlyEager(1.06)
		g.night(exitUsage)
		g.has(g.stderr, "base_command ", want)
		if n := len(g.briefs()); n != 3 {
			t.Errorf("%s: %d nights", script, n)
		}
	}
}

// What a night took before it was killed counts against its deadline; a clock that
// was put back since gives nothing more than the whole of it.
func TestTimeLeft(t *testing.T) {
	begun := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ before, since, want time.Duration }{
		"begun now":              {0, 0, 3 * time.Hour},
		"under way":              {0, time.Hour, 2 * time.Hour},
		"gone on with":           {2 * time.Hour, 30 * time.Minute, 30 * time.Minute},
		"over before":            {4 * time.Hour, 0, -time.Hour},
		"the clock was put back": {-5 * time.Hour, time.Hour, 2 * time.Hour},
	} {
		n := &nightly{env: &Env{Now: func() time.Time { return begun.Add(test.since) }}, config: &nightlyConfig{deadline: 3 * time.Hour}, begun: begun}
		n.state.Began = begun.Add(-test.before)
		if left, limited := n.left(); left != test.want || !limited {
			t.Errorf("%s: %v left, want %v", name, left, test.want)
		}
	}
	n := &nightly{env: &Env{Now: func() time.Time { return begun }}, config: &nightlyConfig{}, begun: begun}
	if left, limited := n.left(); left != 0 || limited {
		t.Errorf("without a deadline: %v, %v", left, limited)
	}
}

// What stands in a night's way, of whatever kind, ends it before it measures, and
// not with the exit code of rows that are slower.
func TestNothingNightlyMakesIsInItsWay(t *testing.T) {
	in := func(g *guarded, name ...string) string {
		return filepath.Join(append([]string{g.dir, defaultHistory}, name...)...)
	}
	for name, test := range map[string]struct {
		harm func(g *guarded) error
		want string
	}{
		"a file for records": {func(g *guarded) error {
			return errors.Join(os.RemoveAll(in(g, "records")), os.WriteFile(in(g, "records"), nil, 0o666))
		}, "history results/nightly cannot be used: make the history's folder: "},
		"a folder for a record": {func(g *guarded) error {
			return os.MkdirAll(in(g, "tonight", "head.json", "mine"), 0o777)
		}, "history results/nightly cannot be used: clear away the night: "},
		"a pipe for the state": {func(g *guarded) error {
			return errors.Join(os.MkdirAll(in(g, "tonight"), 0o777), syscall.Mkfifo(in(g, "tonight", "state.json"), 0o666))
		}, "results/nightly/tonight/state.json cannot be read: is no regular file\n"},
		"a folder for what is half written": {func(g *guarded) error {
			return os.MkdirAll(in(g, "nights", ".trbench-1.tmp", "mine"), 0o777)
		}, "history results/nightly cannot be used: remove what is half written: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
			g.night(exitInconclusive)
			if err := test.harm(g); err != nil {
				t.Fatal(err)
			}
			g.cells = 0
			g.night(exitUsage)
			g.has(g.stderr, "trbench: "+test.want)
			if g.cells != 0 {
				t.Errorf("%d replicates ran", g.cells)
			}
		})
	}
	// A record of the night under way that nobody writes is waited for by nobody.
	g := newGuarded(t, "run: --batch=2 --mode=eager\nsentinel: {off: true}\n")
	ctx, cancel := context.WithCancel(t.Context())
	g.before = func(bench.CellRequest) error { cancel(); return nil }
	g.call(ctx, "nightly", "--config=nightly.yaml")
	g.before = nil
	head := in(g, "tonight", "head.json")
	if err := os.Remove(head); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(head, 0o666); err != nil {
		t.Fatal(err)
	}
	g.night(exitUsage)
	g.has(g.stderr, "tonight/head.json is no regular file\nhint: take results/nightly/tonight away")
}

package cli

import (
	"context"
	"os"
	"path/filepath"
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

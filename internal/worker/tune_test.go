package worker

import (
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

// The reference is submitted by the device's own launcher, wherever it stands
// among the configurations.
func TestReferencesLauncher(t *testing.T) {
	way := func(launcher, ranks string) results.ConfigurationKey {
		k := results.DefaultConfigurationKey()
		k.Mode, k.Sync, k.Launcher, k.Ranks = "graph", "host", launcher, ranks
		return k
	}
	for _, c := range []struct {
		name            string
		ways            []results.ConfigurationKey
		launcher, ranks string
	}{
		{"none", nil, "purego", "threads"},
		{"the CPU's", []results.ConfigurationKey{way("go", "threads")}, "go", "threads"},
		{"a second one alone", []results.ConfigurationKey{way("gorgonia", "processes")}, "purego", "processes"},
		{"a second one first", []results.ConfigurationKey{way("gorgonia", "threads"), way("go", "threads")}, "go", "threads"},
	} {
		k := Reference(c.ways)
		if k.Launcher != c.launcher || k.Ranks != c.ranks || k.Mode != "eager" || k.Sync != "event" {
			t.Errorf("%s: %+v", c.name, k)
		}
	}
}

// The warning of another order of nodes gives the like-for-like time: of the
// fastest candidate that streams order.
func TestTuningDoubts(t *testing.T) {
	eager, step := results.DefaultConfigurationKey(), results.DefaultConfigurationKey()
	step.Mode, step.Sync = "step", "inside"
	choice := results.TuningChoice{Words: "hazards", Source: results.TuningTimed, GraphOrder: "by hazards", Candidates: []results.TuningCandidate{
		{Words: "none", StepTimeNs: 3.4e6}, {Words: "fills", StepTimeNs: 3.2e6}, {Words: "copies", Failure: "no room"},
		{Words: "hazards", StepTimeNs: 2.9e6, GraphOrder: "by hazards"}, {Words: "serial", StepTimeNs: 3.0e6, GraphOrder: "in one chain"},
	}}
	find := func(ws []results.Warning, code string) (text string) {
		for _, w := range ws {
			if w.Code == code {
				text += w.Text
			}
		}
		return text
	}
	both := []results.ConfigurationKey{eager, step}
	got := tuningDoubts(choice, both)
	if text := find(got, "graph_order"); !strings.Contains(text, "3.200 ms ordered by streams (fills), 2.900 ms as chosen (hazards)") || !strings.Contains(text, "by hazards; eager orders them by streams") {
		t.Errorf("%q", text)
	}
	if text := find(got, "tuning_left_out"); !strings.Contains(text, "copies was left out of the comparison: no room") || len(got) != 2 {
		t.Errorf("%+v", got)
	}
	for _, ways := range [][]results.ConfigurationKey{{eager}, {step}} { // nothing to compare
		if text := find(tuningDoubts(choice, ways), "graph_order"); text != "" {
			t.Errorf("%v: %q", ways, text)
		}
	}
	choice.Words, choice.GraphOrder = "fills", ""
	if text := find(tuningDoubts(choice, both), "graph_order"); text != "" {
		t.Errorf("in the order of streams: %q", text)
	}
	if got := tuningDoubts(results.TuningChoice{}, both); len(got) != 0 {
		t.Errorf("of no choice: %+v", got)
	}
	rule := results.TuningChoice{Words: "hazards", Source: results.TuningRule, Rule: "with --quick: small ones", GraphOrder: "by hazards"}
	if text := find(tuningDoubts(rule, both), "tuning_by_rule"); !strings.Contains(text, "a rule of thumb, with --quick: small ones") {
		t.Errorf("%q", text)
	}
}

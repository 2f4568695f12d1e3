package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The candidates stand in a section of their own, with what was taken, what was
// left out and whose order graphs have; library plans do not repeat them.
func TestTuningIsListed(t *testing.T) {
	r := record("cuda", 1)
	r.Cells[0].Plans = []json.RawMessage{
		json.RawMessage(`{"key":"conv 1","choice":"engine 3"}`),
		json.RawMessage(`{"key":"tuning","edges":"hazards","words":"fills,hazards","source":"timed","rule":"in turn","graph_order":"by hazards","candidates":[
			{"words":"none","step_time_ns":3203000,"submit_time_ns":12500},
			{"words":"fills,hazards","step_time_ns":2988000,"submit_time_ns":5000,"graph_order":"by hazards"},
			{"words":"onekernel","failure":"no room"}]}`),
	}
	sections := func() Contents {
		c, err := Collect([]Named{{Name: "a.json", Record: r}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tuning, plans := sectionOf(t, sections(), "Tuning"), sectionOf(t, sections(), "Library plans")
	want := []string{"none|3.20 ms|12.5 us|streams, as eager's|", "fills,hazards|2.99 ms|5.00 us|by hazards|timed", "onekernel|-|-|streams, as eager's|left out"}
	var got []string
	for _, row := range tuning.Grid.Rows {
		got = append(got, strings.Join(row[len(row)-5:], "|"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if text := strings.Join(tuning.Lines, " "); !strings.Contains(text, "timed: in turn.") || !strings.Contains(text, "a freedom that eager has not") {
		t.Errorf("lines %q", tuning.Lines)
	}
	if len(plans.Grid.Rows) != 1 || slices.Contains(plans.Grid.Header, "candidates") {
		t.Errorf("plans %v: %v", plans.Grid.Header, plans.Grid.Rows)
	}
	// One that nobody timed.
	r.Cells[0].Plans = []json.RawMessage{json.RawMessage(`{"key":"tuning","words":"none","source":"given"}`)}
	rows := sectionOf(t, sections(), "Tuning").Grid.Rows
	if len(rows) != 1 || !strings.HasSuffix(strings.Join(rows[0], "|"), "none|-|-|streams, as eager's|given") {
		t.Errorf("rows %q", rows)
	}
}

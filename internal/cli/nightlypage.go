package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// show thins the history, writes the page, and prints the verdict.
func (n *nightly) show(o *outcome, night *history.Night) error {
	var keep []string
	for _, k := range o.records {
		keep = append(keep, k.File)
	}
	removed, bytes, over, err := n.store.Thin(n.config.Retention.rule(), keep)
	if err != nil {
		return err
	}
	rates, err := n.store.Rates()
	if err != nil {
		return err
	}
	series, err := n.store.Series(nil, false)
	if err != nil {
		return err
	}
	changes, err := n.store.Standing(series, n.env.Now())
	if err != nil {
		return err
	}
	doubts, remarks := n.doubts(night), n.remarks(o, rates)
	if over > 0 {
		doubts = append(doubts, fmt.Sprintf("The records and programs of the baseline and this night take %s more than max_bytes.", report.Bytes(over)))
	}
	if err := n.page(o, night, doubts, remarks, series, changes); err != nil {
		return err
	}
	if o.comparison != nil {
		if err := report.Verdict(n.env.Stdout, report.FormatText, o.comparison); err != nil {
			return err
		}
	}
	out := &printer{w: n.env.Stdout}
	out.linef("\nNight %d", night.Sequence)
	for _, l := range slices.Concat(doubts, remarks, changeLines(changes)) {
		out.linef("  %s", l)
	}
	out.linef("  %s of records and programs in %s, %d thinned", report.Bytes(bytes), n.env.short(n.config.History), len(removed))
	out.linef("Page: %s", n.env.short(n.config.Page))
	return out.err
}

// doubts are what must be read with the comparison.
func (n *nightly) doubts(night *history.Night) []string {
	var out []string
	for _, l := range night.LeftOut {
		out = append(out, "Left out: "+l+".")
	}
	for _, w := range night.Warnings {
		out = append(out, fmt.Sprintf("Warning: %s [%s]", w.Text, w.Code))
	}
	for _, m := range n.store.Missing {
		out = append(out, "Missing from the history: "+m+".")
	}
	return out
}

// remarks are what the guard found of itself.
func (n *nightly) remarks(o *outcome, rates history.Rates) []string {
	var out []string
	if s := o.sentinel; s != nil {
		out = append(out, fmt.Sprintf("Sentinel, %s: nothing changed: %s; slowed by %.1f %% (%d ns in %s, noise %.2f %%): %s.",
			s.Row, told(s.Null), 100*s.Factor, s.Ns, s.SubGraph, 100*s.Noise, told(s.Injected)))
	}
	if rates.FalseFinal.N > 0 {
		for _, l := range rateLines(rates) {
			out = append(out, fmt.Sprintf("Over %s, %s.", count(rates.FalseFinal.N, "night"), l))
		}
	}
	return out
}

// maxChangeLines is how many change points are printed; the page and trbench
// history have all.
const maxChangeLines = 20

// changeLines are the change points that nobody has acknowledged, the latest
// first.
func changeLines(changes []results.Change) []string {
	var open []results.Change
	for _, c := range changes {
		if c.Unheeded() {
			open = append(open, c)
		}
	}
	slices.SortStableFunc(open, func(a, b results.Change) int { return b.Night - a.Night })
	var out []string
	for _, c := range open[:min(len(open), maxChangeLines)] {
		out = append(out, fmt.Sprintf("Change point %s (%s): %+.2f %% since night %d: %s.", c.ID, c.State, 100*(c.After/c.Before-1), c.Night, c.Row))
	}
	if more := len(open) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%s more: trbench history lists all.", count(more, "change point")))
	}
	return out
}

func told(t history.Trial) string {
	switch {
	case t.Final:
		return "slower, confirmed"
	case t.First:
		return "slower at first, not confirmed"
	}
	return "not slower (" + t.Verdict + ")"
}

// checkPage finds what would keep the page from its place, before anything is
// measured.
func (n *nightly) checkPage() error {
	err := os.MkdirAll(filepath.Dir(n.config.Page), 0o777)
	if err == nil {
		err = page.CheckFile(n.config.Page)
	}
	if err != nil {
		return &bench.InputError{Name: "page " + n.env.short(n.config.Page), Reason: "cannot be written: " + unwrapPath(err).Error(), Hint: "page: of the configuration says where it goes"}
	}
	return nil
}

// maxListed is how many nights, and how many change points, the page lists.
const maxListed = 100

func (n *nightly) page(o *outcome, night *history.Night, doubts, remarks []string, series []results.Series, changes []results.Change) error {
	extra := page.Extra{Title: fmt.Sprintf("trbench: night %d", night.Sequence)}
	c := &page.Comparison{Status: page.Unclear}
	switch {
	case o.comparison != nil:
		c = page.Judged(o.comparison)
		c.Verdict[0] = fmt.Sprintf("Night %d: %s", night.Sequence, c.Verdict[0])
	case o.err != nil:
		c.Verdict = []string{fmt.Sprintf("Night %d was not compared: %v", night.Sequence, o.err)}
	default:
		c.Verdict = []string{fmt.Sprintf("Night %d: there is no baseline to compare with", night.Sequence)}
	}
	c.Verdict, c.Remarks = append(c.Verdict, doubts...), remarks
	extra.Comparison = c
	nights, err := n.store.List()
	if err != nil {
		return err
	}
	extra.Trends = page.NewTrends(series, changes, o.comparison)
	latest := slices.Clone(changes)
	slices.SortStableFunc(latest, func(a, b results.Change) int { return b.Night - a.Night })
	extra.Trends.Changes = changesGrid(latest[:min(len(latest), maxListed)])
	extra.Trends.Nights = nightsGrid(nights[max(0, len(nights)-maxListed):])
	for _, l := range []struct {
		n    int
		what string
	}{{len(latest), "change points"}, {len(nights), "nights"}} {
		if l.n > maxListed {
			extra.Trends.Notes = append(extra.Trends.Notes, fmt.Sprintf("Listed are the last %d of %d %s; trbench history has all.", maxListed, l.n, l.what))
		}
	}
	records := []report.Named{{Name: "tonight", Record: o.head, Dir: n.store.Records()}}
	extra.Timelines, extra.TimelineNotes = page.ReadTimelines(records)
	if err := os.MkdirAll(filepath.Dir(n.config.Page), 0o777); err != nil {
		return &bench.InputError{Name: "page " + n.env.short(n.config.Page), Reason: "cannot be written: " + unwrapPath(err).Error()}
	}
	if err := page.WriteFile(n.config.Page, records, extra); err != nil {
		return &bench.InputError{Name: "page " + n.env.short(n.config.Page), Reason: "cannot be written: " + err.Error(), Hint: "the night is stored; the next try makes the page"}
	}
	return nil
}

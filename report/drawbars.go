package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tech-renaissance/trbench/results"
)

const (
	maxPanels = 6  // batches in the picture of host time
	maxBars   = 24 // in the picture of preparation
	// maxPhaseNs is a week: beyond, a phase is damage that would flatten
	// every other bar.
	maxPhaseNs = 7 * 24 * 3600e9
)

// hostTime shows submitting, waiting and the rest, a panel a batch. Each panel
// has a scale of its own, since a host that waits for the device waits a
// hundred times longer at a large batch; configurations compare within it.
func (f *family) hostTime() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("Where does the host's time go in a step?", cells, f.ranksWord(gpus))
		metrics := []string{results.SubmitTimeNs, results.SyncWaitNs, results.HostTimeNs}
		sub := &family{cells: cells}
		has := func(c *results.Configuration) bool {
			return slices.ContainsFunc(metrics, func(m string) bool { _, ok := figureOf(c, m); return ok })
		}
		rows := sub.rows(func(_ *results.Cell, c *results.Configuration) bool { return c.Key.DispatchNs == 0 && has(c) })
		if len(rows) == 0 {
			rows = sub.rows(func(_ *results.Cell, c *results.Configuration) bool { return has(c) })
		}
		drawn := p.limit(configurations(rows), maxLines)
		names := labels(drawn)
		colors := partColors()
		b := bars{
			parts:   []part{{"submitting work", colors[0]}, {"waiting in joins", colors[1]}, {"other host work", colors[7]}},
			mark:    "step time",
			xTitle:  "host time a step, to a drained device; every batch has its own scale",
			remarks: []remarkColumn{{title: "host", right: true}, {title: "step", right: true}},
		}
		// Only some devices measure it.
		overhead := slices.ContainsFunc(rows, func(r row) bool { _, ok := figureOf(r.conf, results.LaunchOverheadNs); return ok })
		if overhead {
			b.remarks = append(b.remarks, remarkColumn{title: "launch overhead", right: true})
			p.say("Launch overhead: what a free-running step takes longer than one queued beforehand.")
		}
		var iv intervals
		missing, bad := map[string]int{}, 0
		byBatch := map[int]*panel{}
		var batches []int
		for _, k := range drawn {
			for _, r := range rows {
				if r.conf.Key != k {
					continue
				}
				x := bar{label: names[k], mark: nan()}
				for i, m := range metrics {
					v, ok := figureOf(r.conf, m)
					switch {
					case !ok:
						missing[m]++
					case v.value != 0 && !drawable(v.value):
						bad++
					default:
						iv.add(v)
						s := segment{i, v.value, nan(), nan()}
						if v.interval != nil && v.interval.High < 1e18 {
							s.low, s.high = v.interval.Low, v.interval.High
						}
						x.segments = append(x.segments, s)
					}
				}
				if len(x.segments) == 0 || !finite(x.total()) {
					continue
				}
				x.remarks = []string{Duration(x.total()), "-"}
				if v, ok := figureOf(r.conf, results.StepTimeNs); ok && drawable(v.value) {
					x.mark = v.value
					x.remarks[1] = Duration(v.value)
				}
				if overhead {
					text := "-"
					if v, ok := figureOf(r.conf, results.LaunchOverheadNs); ok {
						text = Duration(v.value)
					}
					x.remarks = append(x.remarks, text)
				}
				batch := r.cell.Key.Batch
				if byBatch[batch] == nil {
					byBatch[batch] = &panel{title: fmt.Sprintf("batch %d", batch)}
					batches = append(batches, batch)
				}
				byBatch[batch].bars = append(byBatch[batch].bars, x)
			}
		}
		if len(batches) == 0 {
			return nil, "no configuration has a submit time, a sync wait or a host time"
		}
		slices.Sort(batches)
		kept, left := choose(batches, maxPanels)
		if left > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d more batches are in the tables.", left))
		}
		for _, n := range kept {
			b.panels = append(b.panels, *byBatch[n])
		}
		for _, m := range metrics {
			if n := missing[m]; n > 0 {
				p.Notes = append(p.Notes, fmt.Sprintf("%s was not measured in %d of %d bars, so they are shorter than the truth.", m, n, len(rows)))
			}
		}
		if bad > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("Times below 0, or beyond any scale, are not drawn: %d.", bad))
		}
		p.say(iv.sentence("each part, where wide enough to see"))
		p.say("A bar that ends before the step time: the host has time left, the device is the limit.")
		p.setBars(b)
		return &p, ""
	})
}

// preparation shows what capturing costs by phase and after how many steps a
// faster step has paid for it.
func (f *family) preparation() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("What does preparing the graphs cost, and when is it repaid?", cells, f.ranksWord(gpus))
		sub := &family{cells: cells}
		rows := sub.rows(func(_ *results.Cell, c *results.Configuration) bool {
			return captured(c.Key) && c.Key.DispatchNs == 0 && len(c.Prepare) > 0
		})
		names := labels(configurations(rows))
		bad := 0
		// Phases in the order they ran, as the rows tell it.
		var phases []string
		total := map[string]float64{}
		for _, r := range rows {
			at := 0
			for _, ph := range r.conf.Prepare {
				name := plain(ph.Phase)
				if i := slices.Index(phases, name); i >= 0 {
					at = i + 1
				} else {
					phases = slices.Insert(phases, at, name)
					at++
				}
				if ph.Ns <= maxPhaseNs {
					total[name] += math.Max(0, float64(ph.Ns))
				}
			}
		}
		parts, index := phaseParts(phases, total)
		b := bars{parts: parts, xTitle: "host time, once before the first step",
			remarks: []remarkColumn{{title: "total", right: true}, {title: "repaid"}}}
		var all []bar
		for _, r := range rows {
			sums := make([]float64, len(parts))
			for _, ph := range r.conf.Prepare {
				i, ok := index[plain(ph.Phase)]
				if ph.Ns < 0 || ph.Ns > maxPhaseNs {
					bad++
				} else if ok {
					sums[i] += float64(ph.Ns)
				}
			}
			x := bar{label: "batch " + strconv.Itoa(r.cell.Key.Batch) + "  " + names[r.conf.Key], mark: nan()}
			for i, v := range sums {
				x.segments = append(x.segments, segment{i, v, nan(), nan()})
			}
			if x.total() <= 0 {
				continue
			}
			x.remarks = []string{Duration(x.total()), repaid(r.cell, r.conf)}
			all = append(all, x)
		}
		if len(all) == 0 {
			return nil, "no captured configuration has phases of preparation"
		}
		kept, left := choose(all, maxBars)
		if left > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d of %d configurations are drawn; the tables have all.", len(kept), len(all)))
		}
		if bad > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("Times below 0, or beyond any scale, are not drawn: %d.", bad))
		}
		b.panels = []panel{{bars: kept}}
		p.say("Repaid: preparation beyond eager's own, over the time that a captured step saves.")
		p.setBars(b)
		return &p, ""
	})
}

// phaseParts gives the phases colours. Phases that took nothing have no part;
// beyond the colours, the smallest are one.
func phaseParts(phases []string, total map[string]float64) ([]part, map[string]int) {
	phases = slices.DeleteFunc(slices.Clone(phases), func(p string) bool { return total[p] <= 0 })
	colors := partColors()
	small := map[string]bool{}
	if len(phases) > len(colors) {
		bySize := slices.Clone(phases)
		slices.SortStableFunc(bySize, func(a, b string) int { return int(math.Copysign(1, total[b]-total[a])) })
		for _, p := range bySize[len(colors)-1:] {
			small[p] = true
		}
	}
	var parts []part
	index := map[string]int{}
	for _, p := range phases {
		if !small[p] {
			index[p] = len(parts)
			parts = append(parts, part{phaseName(p), colors[len(parts)]})
		}
	}
	if len(small) > 0 {
		for p := range small {
			index[p] = len(parts)
		}
		parts = append(parts, part{fmt.Sprintf("%d smaller phases", len(small)), colors[len(parts)]})
	}
	return parts, index
}

// phaseName is a phase's name as words.
func phaseName(p string) string {
	out := []rune(p)
	for i, r := range out {
		if r == '_' {
			out[i] = ' '
		}
	}
	return string(out)
}

// repaid says after how many steps preparation has paid: what it costs beyond
// what eager prepares too, over what a step saves. A gain that is not there,
// or that the interval of the ratio does not tell from none, repays nothing.
func repaid(c *results.Cell, x *results.Configuration) string {
	base := eagerBase(c, x.Key.Control)
	if base == nil {
		return "no eager run to compare with"
	}
	b, okBase := figureOf(base, results.StepTimeNs)
	v, okOwn := figureOf(x, results.StepTimeNs)
	if !okBase || !okOwn || !drawable(b.value) || !drawable(v.value) {
		return "step times unknown"
	}
	if b.value <= v.value {
		return "never: no faster than eager"
	}
	if r, stored, ok := stepRatio(c, base, x); ok && stored && r.interval != nil && r.interval.Low <= 1 {
		return "unclear: the gain may be none"
	}
	cost := 0.0
	for _, ph := range x.Prepare {
		cost += math.Max(0, float64(ph.Ns))
	}
	for _, ph := range base.Prepare {
		cost -= math.Max(0, float64(ph.Ns))
	}
	if cost <= 0 {
		return "at once"
	}
	n := math.Ceil(cost / (b.value - v.value))
	if n >= 1e9 {
		return "after more than 1e9 steps"
	}
	if n == 1 {
		return "after 1 step"
	}
	return fmt.Sprintf("after %s steps", rounded(n))
}

// rounded shows a count with at most three digits that say something.
func rounded(n float64) string {
	if n >= 1000 {
		p := math.Pow(10, math.Floor(math.Log10(n))-2)
		n = math.Round(n/p) * p
	}
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

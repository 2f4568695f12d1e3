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
// has a scale of its own, which the host's work determines: the device's time,
// which is a hundred times longer at a large batch, and waiting for it may
// leave the picture, and stand beside the bars in words.
func (f *family) hostTime() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("Where does the host's time go in a step?", cells, f.ranksWord(gpus))
		metrics := []string{results.SubmitTimeNs, results.HostTimeNs, results.SyncWaitNs}
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
			parts:   []part{{"submitting work", colors[0], false}, {"other host work", colors[7], false}, {"waiting in joins", colors[1], true}},
			mark:    "step time",
			xTitle:  "host time a step, to a drained device; every batch has its own scale",
			remarks: []remarkColumn{{title: "host", right: true}, {title: "of it waiting", right: true}, {title: "step", right: true}},
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
				x, waiting := bar{label: names[k], mark: nan()}, "-"
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
						if m == results.SyncWaitNs {
							waiting = Duration(v.value)
						}
					}
				}
				if len(x.segments) == 0 || !finite(x.total()) {
					continue
				}
				x.remarks = []string{Duration(x.total()), waiting, "-"}
				if v, ok := figureOf(r.conf, results.StepTimeNs); ok && drawable(v.value) {
					x.mark = v.value
					x.remarks[2] = Duration(v.value)
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
			remarks: []remarkColumn{{title: "total", right: true}, {title: "+-", right: true}, {title: "repaid"}}}
		var all []bar
		var iv intervals
		summed := 0
		for _, r := range rows {
			sums := make([]float64, len(parts))
			members := make([][]results.Phase, len(parts))
			for _, ph := range r.conf.Prepare {
				i, ok := index[plain(ph.Phase)]
				if ph.Ns < 0 || ph.Ns > maxPhaseNs {
					bad++
				} else if ok {
					sums[i] += float64(ph.Ns)
					members[i] = append(members[i], ph)
				}
			}
			x := bar{label: "batch " + strconv.Itoa(r.cell.Key.Batch) + "  " + names[r.conf.Key], mark: nan()}
			for i, v := range sums {
				s := segment{i, v, nan(), nan()}
				if v > 0 {
					f := figure{value: v, interval: phaseInterval(members[i])}
					if iv.add(f); f.interval != nil {
						s.low, s.high = f.interval.Low, f.interval.High
					}
				}
				x.segments = append(x.segments, s)
			}
			if x.total() <= 0 {
				continue
			}
			total, stored := preparationOf(r.conf)
			if !stored {
				summed++
			}
			x.remarks = []string{Duration(total.value), total.plusMinus(), repaid(r.cell, r.conf)}
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
		p.say(iv.sentence("each phase, where wide enough to see"))
		switch summed {
		case 0:
			p.say("Total: median of the processes' sums (prepare_ns, as in CSV and benchstat), so not exactly the sum of the phases' medians drawn.")
		case len(all):
			p.say("Total: sum of the phases' medians; the record has no prepare_ns.")
		default:
			p.say("Total: median of the processes' sums (prepare_ns, as in CSV and benchstat) where the record has it, else the sum of the phases' medians.")
		}
		p.Notes = append(p.Notes, "Repaid: preparation beyond eager's own, over the time that a captured step saves; its range is from the speed-up's interval alone.")
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
			parts = append(parts, part{name: phaseName(p), color: colors[len(parts)]})
		}
	}
	if len(small) > 0 {
		for p := range small {
			index[p] = len(parts)
		}
		parts = append(parts, part{name: fmt.Sprintf("%d smaller phases", len(small)), color: colors[len(parts)]})
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

// phaseInterval is the range over processes of phases that one segment shows;
// nil if not all say what they took in each process.
func phaseInterval(phases []results.Phase) *results.Interval {
	n := 0
	for i, ph := range phases {
		if i == 0 {
			n = len(ph.Processes)
		}
		if len(ph.Processes) != n {
			return nil
		}
	}
	if n < 2 {
		return nil
	}
	// The whole range is what order statistics give at few processes.
	out := &results.Interval{Low: math.Inf(1), High: math.Inf(-1), Coverage: 1 - math.Pow(2, 1-float64(n)), Method: "order"}
	for p := range n {
		sum := 0.0
		for _, ph := range phases {
			sum += float64(ph.Processes[p])
		}
		out.Low, out.High = min(out.Low, sum), max(out.High, sum)
	}
	return out
}

// preparationOf is what a configuration prepared in all: the record's figure,
// which is the median of the processes' sums, or else the sum of its phases'
// medians.
func preparationOf(c *results.Configuration) (f figure, stored bool) {
	if f, ok := figureOf(c, results.PrepareNs); ok && f.value >= 0 && f.value <= maxPhaseNs {
		return f, true
	}
	for _, ph := range c.Prepare {
		if ph.Ns > 0 && ph.Ns <= maxPhaseNs {
			f.value += float64(ph.Ns)
		}
	}
	return f, false
}

// repaid says after how many steps preparation has paid: what it costs beyond
// what eager prepares too, over what a step saves, with the range that the
// speed-up's interval leaves. A gain that the interval does not tell from none
// may never repay it.
func repaid(c *results.Cell, x *results.Configuration) string {
	base := eagerBase(c, x.Key.Control)
	if base == nil {
		return "no eager run to compare with"
	}
	b, okBase := figureOf(base, results.StepTimeNs)
	ratio, _, ok := stepRatio(c, base, x)
	if !okBase || !drawable(b.value) || !ok {
		return "step times unknown"
	}
	own, _ := preparationOf(x)
	others, _ := preparationOf(base)
	cost := own.value - others.value
	// after is how many steps repay it at a speed-up.
	after := func(ratio float64) float64 {
		if ratio <= 1 {
			return math.Inf(1)
		}
		return math.Ceil(cost / (b.value * (1 - 1/ratio)))
	}
	best, worst := ratio.value, ratio.value
	if i := ratio.interval; i != nil {
		best, worst = max(best, i.High), min(worst, i.Low)
	}
	switch {
	case best <= 1:
		return "never: no faster than eager"
	case cost <= 0 && worst > 1:
		return "at once"
	case cost <= 0:
		return "unclear: at once, or never"
	case worst <= 1:
		return fmt.Sprintf("unclear: %s at best, or never", stepCount(after(best)))
	case ratio.interval == nil:
		return "after " + stepCount(after(ratio.value))
	}
	return fmt.Sprintf("after %s (%s..%s)", stepCount(after(ratio.value)), steps(after(best)), steps(after(worst)))
}

// steps shows a number of steps; beyond a billion nobody waits for it.
func steps(n float64) string {
	if n >= 1e9 {
		return ">1e9"
	}
	return rounded(n)
}

func stepCount(n float64) string {
	if n == 1 {
		return "1 step"
	}
	return steps(n) + " steps"
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

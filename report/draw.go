package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/tech-renaissance/trbench/results"
)

// Kind is a question that a plot answers.
type Kind string

// The plots.
const (
	StepTime    Kind = "step_time"   // step time by batch and configuration
	SpeedUp     Kind = "speed_up"    // eager over captured, by batch
	HostTime    Kind = "host_time"   // where a step's host time goes
	Dispatch    Kind = "dispatch"    // speed-up against the cost of a launch
	Scaling     Kind = "scaling"     // images per second by GPU count
	Preparation Kind = "preparation" // what capture costs, and when it is repaid
)

// Kinds lists the plots in the order a page shows them.
func Kinds() []Kind { return []Kind{StepTime, SpeedUp, HostTime, Dispatch, Scaling, Preparation} }

// Draw makes the pictures of a kind that the records can carry: one for each
// workload, machine and, where it matters, batch or GPU count. It says in words
// why a picture is absent. Nothing is drawn of cells whose modes differed.
func Draw(kind Kind, records []Named) (pictures []Picture, absent []string) {
	fs, cells := gather(records).families()
	pictures, absent = drawFamilies(kind, fs)
	return pictures, append(absent, cells...)
}

func drawFamilies(kind Kind, fs []*family) (pictures []Picture, absent []string) {
	draw := map[Kind]func(*family) ([]Picture, string){
		StepTime: (*family).stepTime, SpeedUp: (*family).speedUp, HostTime: (*family).hostTime,
		Dispatch: (*family).dispatch, Scaling: (*family).scaling, Preparation: (*family).preparation,
	}[kind]
	if draw == nil {
		return nil, []string{fmt.Sprintf("%s is not a plot.", kind)}
	}
	for _, f := range fs {
		ps, why := draw(f)
		if len(ps) == 0 {
			absent = append(absent, fmt.Sprintf("%s is not drawn for %s: %s.", kind, f.describe(), why))
		}
		for i := range ps {
			ps[i].Name = strings.Trim(string(kind)+"_"+f.suffix, "_") + ps[i].Name
			ps[i].Notes = slices.Concat(f.warnings(), f.notes, ps[i].Notes)
		}
		pictures = append(pictures, ps...)
	}
	return pictures, absent
}

// describe names a family in a sentence and a subtitle: what was trained.
func (f *family) describe() string {
	k, def := f.key, results.DefaultCellKey()
	words := []string{plain(k.Workload), plain(k.Precision), plain(k.Optimizer)}
	if k.EMA {
		words = append(words, "EMA")
	}
	if k.Smoothing != def.Smoothing {
		words = append(words, "smoothing "+exact(k.Smoothing))
	}
	if k.Frozen {
		words = append(words, "frozen stem")
	}
	if k.Resolution.Begin != k.Resolution.Final {
		words = append(words, fmt.Sprintf("resolution %d,%d", k.Resolution.Begin, k.Resolution.Final))
	}
	if k.Variant != def.Variant {
		words = append(words, fmt.Sprintf("variant %d", k.Variant))
	}
	if k.Kernels != def.Kernels && k.Kernels != "" {
		words = append(words, plain(k.Kernels)+" kernels")
	}
	for _, v := range f.facts {
		words = append(words, v.name+" "+v.value)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

// deviceOf is what a reader knows the device by.
func deviceOf(r *results.Record) string {
	if g, ok := r.Environment.Field("gpu.name"); ok && g.Value != "" && r.Device.Name != "cpu" {
		return plain(g.Value)
	}
	if d := plain(r.Device.Description); d != "" {
		return d
	}
	return plain(r.Device.Name)
}

// picture begins a picture of some of the family's cells.
func (f *family) picture(title string, cells []*results.Cell, where string) Picture {
	var devices, dates []string
	quick := false
	for _, src := range f.srcs {
		if d := deviceOf(src.record); d != "" && !slices.Contains(devices, d) {
			devices = append(devices, d)
		}
		if t := src.record.Created; !t.IsZero() {
			dates = append(dates, t.UTC().Format("2006-01-02"))
		}
		quick = quick || src.record.Quick
	}
	if len(devices) == 0 {
		devices = append(devices, plain(f.key.Device))
	}
	first := strings.Join(devices, " and ") + ": " + f.describe()
	if where != "" {
		first += ", " + where
	}
	var second []string
	lo, hi := math.MaxInt, 0
	for _, c := range cells {
		done, _ := processes(c)
		lo, hi = min(lo, done), max(hi, done)
	}
	switch {
	case hi == 0:
		second = append(second, "processes not recorded")
	case lo == hi && hi == 1:
		second = append(second, "1 process")
	case lo == hi:
		second = append(second, fmt.Sprintf("%d processes", hi))
	default:
		second = append(second, fmt.Sprintf("%d to %d processes", lo, hi))
	}
	slices.Sort(dates)
	if dates = slices.Compact(dates); len(dates) == 1 {
		second = append(second, dates[0])
	} else if len(dates) > 1 {
		second = append(second, dates[0]+" to "+dates[len(dates)-1])
	}
	if quick {
		second = append(second, "quick run")
	}
	p := Picture{Title: title, Subtitle: []string{first, strings.Join(second, ", ") + "."}}
	if f.key.Device == "cpu" {
		p.Doubts = append(p.Doubts, "A CPU record shows the method, not the gain: here a launch costs next to nothing.")
	}
	return p
}

// say appends a sentence to the last line of the subtitle.
func (p *Picture) say(sentence string) {
	p.Subtitle[len(p.Subtitle)-1] += " " + sentence
}

// intervals collects how the intervals in a picture were made.
type intervals struct {
	kinds []string
	none  int // figures without one
}

func (v *intervals) add(f figure) {
	if f.interval == nil {
		v.none++
		return
	}
	if k := describe(f.interval); !slices.Contains(v.kinds, k) {
		v.kinds = append(v.kinds, k)
	}
}

func (v *intervals) sentence(what string) string {
	switch {
	case len(v.kinds) == 0:
		return "No intervals: they need two processes or more."
	case v.none > 0:
		return fmt.Sprintf("Whiskers, where known: interval of %s (%s).", what, coverages(v.kinds))
	}
	return fmt.Sprintf("Whiskers: interval of %s (%s).", what, coverages(v.kinds))
}

// coverages puts kinds of intervals that differ in their coverage alone into one
// word: cells have more and fewer processes.
func coverages(kinds []string) string {
	var methods []string
	of := map[string][]string{}
	for _, k := range kinds {
		method, covers, _ := strings.Cut(k, ", covers ")
		if of[method] == nil {
			methods = append(methods, method)
		}
		of[method] = append(of[method], covers)
	}
	for i, m := range methods {
		if c := strings.Join(slices.DeleteFunc(of[m], func(s string) bool { return s == "" }), " or "); c != "" {
			methods[i] += ", covers " + c
		}
	}
	return strings.Join(methods, "; ")
}

// only keeps the cells that hold.
func only(cells []*results.Cell, keep func(*results.Cell) bool) []*results.Cell {
	var out []*results.Cell
	for _, c := range cells {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}

func gpuWord(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// ranksWord names the ranks of a family: on a CPU they are no GPUs.
func (f *family) ranksWord(n int) string {
	if f.key.Device == "cpu" {
		if n == 1 {
			return "1 rank"
		}
		return fmt.Sprintf("%d ranks", n)
	}
	return gpuWord(n)
}

// choose keeps at most n of many, evenly, the first and the last among them.
func choose[T any](all []T, n int) (kept []T, left int) {
	if len(all) <= n {
		return all, 0
	}
	for i := range n {
		kept = append(kept, all[i*(len(all)-1)/(n-1)])
	}
	return kept, len(all) - n
}

// limit drops configurations beyond those a picture can hold.
func (p *Picture) limit(keys []results.ConfigurationKey, n int) []results.ConfigurationKey {
	if len(keys) <= n {
		return keys
	}
	p.Notes = append(p.Notes, fmt.Sprintf("%d of %d configurations are drawn; the tables have all.", n, len(keys)))
	return keys[:n]
}

// undrawn notes values that a log axis cannot hold.
func (p *Picture) undrawn(n int, what string) {
	switch {
	case n == 1:
		p.Notes = append(p.Notes, fmt.Sprintf("1 %s is not drawn: it is not above 0, or beyond any scale; the axis is logarithmic.", what))
	case n > 1:
		p.Notes = append(p.Notes, fmt.Sprintf("%d %ss are not drawn: they are not above 0, or beyond any scale; the axis is logarithmic.", n, what))
	}
}

// perGPUs calls draw once for each GPU count and names the pictures.
func (f *family) perGPUs(draw func(cells []*results.Cell, gpus int) (*Picture, string)) (out []Picture, why string) {
	counts := f.values(gpusOf)
	for _, g := range counts {
		p, w := draw(only(f.cells, func(c *results.Cell) bool { return c.Key.GPUs == g }), g)
		if p == nil {
			why = w
			continue
		}
		if len(counts) > 1 {
			p.Name = fmt.Sprintf("_gpus%d", g)
		}
		out = append(out, *p)
	}
	return out, why
}

// arrows explains the ends of intervals that a picture has no room for.
const arrows = "Intervals that leave the picture end in arrows."

func (p *Picture) set(l lines) {
	subtitle := slices.Clone(p.Subtitle)
	p.chart = func() Chart { return lineChart(subtitle, l) }
	if l.leaves() {
		p.Subtitle = append(p.Subtitle, arrows)
	}
	p.height, p.body = bodyHeight, l.draw
}

func (p *Picture) setBars(b bars) {
	subtitle := slices.Clone(p.Subtitle)
	p.chart = func() Chart { return barChart(subtitle, b) }
	var out []string
	if b.broken() {
		out = append(out, "Bars that leave the picture end in a point.")
	}
	if b.leaves() {
		out = append(out, arrows)
	}
	if b.unmarked() {
		out = append(out, fmt.Sprintf("A %s that lies beyond its axis stands beside the bar only.", b.mark))
	}
	if len(out) > 0 {
		p.Subtitle = append(p.Subtitle, strings.Join(out, " "))
	}
	p.height, p.body = b.height(), b.draw
}

// yValues are all that must lie inside an axis. Ends of intervals count, but
// not so far out that they would flatten the lines.
func yValues(ss []series) []float64 {
	var out []float64
	for _, s := range ss {
		for _, q := range s.points {
			out = append(out, q.y)
			for _, end := range []float64{q.low, q.high} {
				if end > q.y/3 && end < q.y*3 {
					out = append(out, end)
				}
			}
		}
	}
	return out
}

func countsX(ss []series) func(vg.Length) axis {
	var counts []int
	for _, s := range ss {
		for _, q := range s.points {
			counts = append(counts, int(q.x))
		}
	}
	return func(width vg.Length) axis { return countAxis(counts, width) }
}

// stepTime shows step time by batch, a line a configuration.
func (f *family) stepTime() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("How long is a step, by batch?", cells, f.ranksWord(gpus))
		sub := &family{cells: cells}
		rows := sub.rows(func(_ *results.Cell, c *results.Configuration) bool { return c.Key.DispatchNs == 0 })
		if len(rows) == 0 {
			rows = sub.rows(func(*results.Cell, *results.Configuration) bool { return true })
		}
		keys := configurations(rows)
		drawn := p.limit(keys, maxLines)
		names, styles := labels(drawn), assign(drawn)
		bad, top := 0, 0.0
		var ss []series
		var iv intervals
		for _, k := range drawn {
			s := series{label: names[k], look: styles[k]}
			for _, r := range rows {
				if r.conf.Key != k {
					continue
				}
				v, ok := figureOf(r.conf, results.StepTimeNs)
				if ok && drawable(v.value) && r.cell.Key.Batch > 0 {
					iv.add(v)
					s.points, top = append(s.points, pointOf(float64(r.cell.Key.Batch), v, 1)), max(top, v.value)
				} else if r.conf.Metric(results.StepTimeNs) != nil {
					bad++
				}
			}
			if len(s.points) > 0 {
				ss = append(ss, s)
			}
		}
		if len(ss) == 0 {
			return nil, "no configuration has a step time above 0"
		}
		u := scaleSeries(ss)
		p.undrawn(bad, "step time")
		p.say(iv.sentence("the median"))
		p.set(lines{
			xTitle: "batch (images a rank and step)", yTitle: "step time (" + u.name + "), less is better",
			xName: "batch", yName: "step time, " + u.name,
			x: countsX(ss), y: logAxis(yValues(ss), 2), series: ss,
		})
		return &p, ""
	})
}

// scaleSeries puts times into the unit of their geometric mean.
func scaleSeries(ss []series) unit {
	sum, n := 0.0, 0.0
	for _, s := range ss {
		for _, q := range s.points {
			sum, n = sum+math.Log(q.y), n+1
		}
	}
	u := timeUnit(math.Exp(sum / n))
	for _, s := range ss {
		for i := range s.points {
			q := &s.points[i]
			q.y, q.low, q.high = q.y/u.by, q.low/u.by, q.high/u.by
		}
	}
	return u
}

// speedUp shows eager over each captured configuration.
func (f *family) speedUp() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("How much faster is a captured step than an eager one, by batch?", cells, f.ranksWord(gpus))
		sub := &family{cells: cells}
		rows := sub.rows(func(_ *results.Cell, c *results.Configuration) bool {
			return captured(c.Key) && c.Key.DispatchNs == 0
		})
		drawn := p.limit(configurations(rows), maxLines)
		names, styles := labels(drawn), assign(drawn)
		var ss []series
		var iv intervals
		var bases []results.ConfigurationKey
		bad, quotients := 0, 0
		for _, k := range drawn {
			s := series{label: names[k], look: styles[k]}
			for _, r := range rows {
				base := eagerBase(r.cell, k.Control)
				if r.conf.Key != k || base == nil {
					continue
				}
				v, stored, ok := stepRatio(r.cell, base, r.conf)
				if !ok || r.cell.Key.Batch <= 0 {
					bad++
					continue
				}
				if !stored {
					quotients++
				}
				iv.add(v)
				s.points = append(s.points, pointOf(float64(r.cell.Key.Batch), v, 1))
				if !slices.Contains(bases, base.Key) {
					bases = append(bases, base.Key)
				}
			}
			if len(s.points) > 0 {
				ss = append(ss, s)
			}
		}
		if len(ss) == 0 {
			return nil, "it needs an eager and a captured configuration in one cell, with step times above 0"
		}
		dodge(ss)
		p.undrawn(bad, "speed-up")
		p.say(iv.sentence("the speed-up"))
		p.ratioNote(quotients, points(ss))
		base := "eager"
		if len(bases) == 1 {
			base = labels(append(bases, bases[0]))[bases[0]]
		}
		p.set(lines{
			xName: "batch", yName: "speed-up",
			xTitle: "batch (images a rank and step)", yTitle: "speed-up: step time of " + base + " over that of the line (times), more is better",
			x: countsX(ss), y: ratioAxis(yValues(ss)), series: ss, rules: []rule{{1, "as fast as " + base}},
		})
		return &p, ""
	})
}

// meanNote says why a speed-up differs a little from what a reader finds who
// divides the step times.
const meanNote = "geometric mean of the processes' paired ratios, so not exactly the quotient of the step times"

// ratioNote says how the speed-ups of a picture were made.
func (p *Picture) ratioNote(quotients, points int) {
	if quotients < points {
		p.Notes = append(p.Notes, "A speed-up is the "+meanNote+" in the tables.")
	}
	if quotients == 1 {
		p.Notes = append(p.Notes, "For 1 point the record stores no ratio: it is the quotient of two medians and has no interval.")
	} else if quotients > 1 {
		p.Notes = append(p.Notes, fmt.Sprintf("For %d points the record stores no ratio: they are quotients of two medians and have no interval.", quotients))
	}
}

func points(ss []series) int {
	n := 0
	for _, s := range ss {
		n += len(s.points)
	}
	return n
}

// dispatch shows the speed-up against host time burnt before each eager
// launch, a line a batch. The axis is linear: as long as the host is the
// limit, a step grows by launches x dispatch, which is a straight line.
func (f *family) dispatch() ([]Picture, string) {
	return f.perGPUs(func(cells []*results.Cell, gpus int) (*Picture, string) {
		p := f.picture("How much does capture gain on a slower host, by batch?", cells, f.ranksWord(gpus))
		var ss []series
		var iv intervals
		var xs []float64
		var others []results.ConfigurationKey
		quotients := 0
		for _, c := range cells {
			best, base := bestCaptured(c), eagerBase(c, "device")
			if best == nil {
				continue
			}
			s := series{label: fmt.Sprintf("batch %d", c.Key.Batch)}
			for i := range c.Configurations {
				x := &c.Configurations[i]
				if captured(x.Key) || x.Key.DispatchNs < 0 || x.Key.DispatchNs > 1e12 {
					continue
				}
				// One line is one way of joining, at several costs.
				want := results.ConfigurationKey{Mode: "eager", Sync: "event", Control: "device", Launcher: x.Key.Launcher, Ranks: x.Key.Ranks, DispatchNs: x.Key.DispatchNs}
				if base != nil {
					want = base.Key
					want.DispatchNs = x.Key.DispatchNs
				}
				if x.Key != want {
					continue
				}
				v, stored, ok := stepRatio(c, x, best)
				if !ok {
					continue
				}
				if !stored {
					quotients++
				}
				iv.add(v)
				s.points = append(s.points, pointOf(float64(x.Key.DispatchNs), v, 1))
			}
			slices.SortFunc(s.points, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
			if len(s.points) < 2 {
				continue
			}
			for _, q := range s.points {
				xs = append(xs, q.x)
			}
			if !slices.Contains(others, best.Key) {
				others = append(others, best.Key)
			}
			ss = append(ss, s)
		}
		if len(ss) == 0 {
			return nil, "it needs eager configurations with two or more --dispatch-ns and a captured one beside them"
		}
		var left int
		beside := p.peerSpeedUps(f.peers, cells)
		if ss, left = choose(ss, max(maxLines-len(beside), 2)); left > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d more batches are in the tables.", left))
		}
		for i := range ss {
			ss[i].look = looks()[[maxLines]int{0, 2, 4, 5, 6, 1, 3, 7}[i]]
		}
		for _, q := range beside {
			xs = append(xs, q.points[0].x)
		}
		ss = append(ss, beside...)
		ax := linearAxis(xs)
		u := timeUnit(ax.hi)
		for i := range ss {
			for j := range ss[i].points {
				ss[i].points[j].x /= u.by
			}
		}
		lo := -ax.hi / u.by * 0.02
		ax = axis{lo, ax.hi / u.by, false, linearTicks(0, ax.hi/u.by, 8)}
		p.say(iv.sentence("the speed-up"))
		p.ratioNote(quotients, points(ss))
		names := labels(configurations(sliceRows(others)))
		var list []string
		for _, k := range others {
			if !slices.Contains(list, names[k]) {
				list = append(list, names[k])
			}
		}
		p.say("Best captured: " + strings.Join(list, " or ") + ".")
		p.set(lines{
			xName: "added host time, " + u.name, yName: "speed-up",
			xTitle: "host time added before each eager launch (" + u.name + ")",
			yTitle: "speed-up: step time of eager over that of the best captured (times), more is better",
			x:      func(vg.Length) axis { return ax }, y: ratioAxis(yValues(ss)), series: ss,
			rules: []rule{{1, "as fast as eager"}},
		})
		return &p, ""
	})
}

// sliceRows wraps keys for configurations.
func sliceRows(keys []results.ConfigurationKey) []row {
	var out []row
	for _, k := range keys {
		out = append(out, row{conf: &results.Configuration{Key: k}})
	}
	return out
}

// scaling shows images per second by GPU count at one batch a GPU.
func (f *family) scaling() (out []Picture, why string) {
	why = "it needs cells of one batch on two or more GPU counts"
	batches := f.values(batchOf)
	for _, batch := range batches {
		cells := only(f.cells, func(c *results.Cell) bool { return c.Key.Batch == batch && c.Key.GPUs > 0 })
		sub := &family{cells: cells}
		if len(sub.values(gpusOf)) < 2 {
			continue
		}
		p := f.scalingAt(cells, batch)
		if p == nil {
			why = "no configuration has images per second above 0 on two GPU counts"
			continue
		}
		p.Name = fmt.Sprintf("_batch%d", batch)
		out = append(out, *p)
	}
	if len(out) == 1 {
		out[0].Name = ""
	}
	return out, why
}

func (f *family) scalingAt(cells []*results.Cell, batch int) *Picture {
	what := "GPUs"
	if f.key.Device == "cpu" {
		what = "ranks"
	}
	p := f.picture("How do images per second grow with "+what+"?", cells, fmt.Sprintf("batch %d each", batch))
	sub := &family{cells: cells}
	rows := sub.rows(func(_ *results.Cell, c *results.Configuration) bool { return c.Key.DispatchNs == 0 })
	drawn := p.limit(configurations(rows), maxLines-1)
	names, styles := labels(drawn), assign(drawn)
	var ss []series
	var iv intervals
	bad, least, most := 0, math.MaxInt, 0
	ideal := series{label: "ideal", look: look{color: quiet, dash: []vg.Length{1, 2}}, bare: true}
	var perGPU float64
	for _, k := range drawn {
		s := series{label: names[k], look: styles[k]}
		for _, r := range rows {
			if r.conf.Key != k {
				continue
			}
			v, ok := figureOf(r.conf, results.ImagesPerS)
			if ok && drawable(v.value) {
				iv.add(v)
				s.points = append(s.points, pointOf(float64(r.cell.Key.GPUs), v, 1))
			} else if r.conf.Metric(results.ImagesPerS) != nil {
				bad++
			}
		}
		if len(s.points) < 2 {
			continue
		}
		first, last := s.points[0], s.points[len(s.points)-1]
		if n := int(first.x); n < least {
			least, perGPU = n, 0
		}
		if int(first.x) == least {
			perGPU = max(perGPU, first.y/first.x)
		}
		most = max(most, int(last.x))
		if share := last.y / last.x / (first.y / first.x); finite(share) {
			s.label += " (" + percent(share) + ")"
		}
		ss = append(ss, s)
	}
	if len(ss) == 0 {
		return nil
	}
	for n := least; ; n *= 2 {
		n = min(n, most)
		ideal.points = append(ideal.points, point{x: float64(n), y: perGPU * float64(n), low: nan(), high: nan()})
		if n == most {
			break
		}
	}
	if end := ideal.points[len(ideal.points)-1].y; finite(end) {
		ss = append(ss, ideal)
	}
	p.undrawn(bad, "rate")
	p.say(iv.sentence("the median"))
	one := strings.TrimSuffix(what, "s")
	p.say(fmt.Sprintf("Percent: images per second and %s on the most %s, as a share of those on the fewest. Ideal: the fastest on %s, as often as there are %s.",
		one, what, f.ranksWord(least), what))
	p.set(lines{
		xName: what, yName: "images/s",
		xTitle: what + " (weak scaling: the batch on each stays the same)", yTitle: "images per second, all " + what + " together, more is better",
		x: countsX(ss), y: logAxis(yValues(ss), 2), series: ss,
	})
	return &p
}

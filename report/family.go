package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tech-renaissance/trbench/results"
)

// family is cells that differ in batch and GPUs only, of records that do not
// differ in what they ran on: what one picture may show.
type family struct {
	key   results.CellKey // without batch, GPUs and last batch
	facts []fact          // in which its records differ from others
	srcs  []*source
	cells []*results.Cell
	// suffix tells its files from other families' files.
	suffix string
	peers  []Peer
	notes  []string
	warned []string // the codes of all warnings, each once
}

// families groups all cells. Cells whose modes were not equal are left out
// with a note: their figures mean nothing.
func (s sources) families() (out []*family, absent []string) {
	groups := s.groups()
	index := map[string]*family{}
	id := func(src *source, c *results.Cell) (string, results.CellKey) {
		k := c.Key
		k.Batch, k.GPUs = 0, 0
		if k.Variant%2 == 0 {
			k.LastBatch = results.LastBatch{} // follows from the batch and was not timed
		}
		return fmt.Sprintf("%s %+v", groups[src], k), k
	}
	for cell, src := range s.cells {
		if len(cell.Configurations) == 0 || !cell.Verify.Equal {
			continue
		}
		i, k := id(src, cell)
		f := index[i]
		if f == nil {
			f = &family{key: k, peers: s.peers}
			for j, name := range s.columns {
				if name != "file" || strings.HasPrefix(groups[src], "file ") {
					f.facts = append(f.facts, fact{name, src.shown[j]})
				}
			}
			index[i], out = f, append(out, f)
		}
		if f.repeats(cell) {
			f.notes = append(f.notes, fmt.Sprintf("A second cell of batch %d on %s is not drawn.", cell.Key.Batch, f.ranksWord(cell.Key.GPUs)))
			continue
		}
		if failed(cell) {
			f.notes = append(f.notes, fmt.Sprintf("Batch %d on %s failed; drawn is what its finished processes measured.", cell.Key.Batch, f.ranksWord(cell.Key.GPUs)))
		}
		for _, w := range cell.Warnings {
			f.warn(w)
		}
		f.cells = append(f.cells, cell)
		if !slices.Contains(f.srcs, src) {
			f.srcs = append(f.srcs, src)
			for _, w := range src.record.Warnings {
				f.warn(w)
			}
		}
	}
	for cell, src := range s.cells {
		var why string
		switch {
		case len(cell.Configurations) == 0 && failed(cell):
			why = "failed before it was timed"
		case len(cell.Configurations) == 0:
			why = "has no configurations"
		case !cell.Verify.Equal:
			why = "is not drawn: its modes were not found equal, so its figures mean nothing"
		default:
			continue
		}
		absent = append(absent, fmt.Sprintf("%s %s.", s.place(src, cell), why))
		if i, _ := id(src, cell); index[i] != nil {
			f := index[i]
			f.notes = append(f.notes, fmt.Sprintf("Batch %d on %s %s.", cell.Key.Batch, f.ranksWord(cell.Key.GPUs), why))
		}
	}
	if len(out) == 0 && len(absent) == 0 {
		absent = append(absent, "Nothing is drawn: the records have no cells.")
	}
	for _, f := range out {
		slices.SortStableFunc(f.cells, func(a, b *results.Cell) int {
			return cmp.Or(cmp.Compare(a.Key.Batch, b.Key.Batch), cmp.Compare(a.Key.GPUs, b.Key.GPUs))
		})
	}
	nameFamilies(out)
	return out, absent
}

func (f *family) warn(w results.Warning) {
	code := plain(w.Code)
	if code == "" {
		code = "unnamed"
	}
	if !slices.Contains(f.warned, code) {
		f.warned = append(f.warned, code)
	}
}

// maxWarned is how many lines below a picture name the kinds of warnings.
const maxWarned = 2

// warnings names the kinds of warnings; the tables have their texts.
func (f *family) warnings() []string {
	n := len(f.warned)
	if n == 0 {
		return nil
	}
	text := func(kept int) string {
		s := fmt.Sprintf("%d warnings: %s", n, strings.Join(f.warned[:kept], ", "))
		if n == 1 {
			s = "1 warning: " + f.warned[0]
		}
		if kept < n {
			s += ", ..."
		}
		return s + "; see the table."
	}
	kept := n
	for kept > 1 && len(wrap(text(kept), noteStyle(), pictureWidth-2*margin)) > maxWarned {
		kept--
	}
	return []string{text(kept)}
}

// repeats tells whether a cell holds a configuration that the family has at
// the same batch and GPUs. Cells that only add to it, as when modes were run in
// two sessions, do not.
func (f *family) repeats(cell *results.Cell) bool {
	for _, o := range f.cells {
		if o.Key.Batch != cell.Key.Batch || o.Key.GPUs != cell.Key.GPUs {
			continue
		}
		for i := range o.Configurations {
			if slices.ContainsFunc(cell.Configurations, func(c results.Configuration) bool { return c.Key == o.Configurations[i].Key }) {
				return true
			}
		}
	}
	return false
}

// groups says which records may share a picture: those that do not differ, a
// file's name apart, unless they hold the same row twice.
func (s sources) groups() map[*source]string {
	type rowKey struct {
		group string
		cell  results.CellKey
		conf  results.ConfigurationKey
	}
	group := map[*source]string{}
	for _, src := range s.list {
		shown := src.shown
		if len(s.columns) > 0 && s.columns[0] == "file" {
			shown = shown[1:]
		}
		group[src] = strings.Join(shown, "\x00")
	}
	owner := map[rowKey]*source{}
	clash := map[string]bool{}
	for _, r := range s.rows() {
		k := rowKey{group[r.source], r.cell.Key, r.conf.Key}
		if o, ok := owner[k]; ok && o != r.source {
			clash[k.group] = true
		}
		owner[k] = r.source
	}
	for src, g := range group {
		if clash[g] {
			group[src] = "file " + src.name + "\x00" + g
		}
	}
	return group
}

// nameFamilies gives each family's files a suffix from what it differs in.
func nameFamilies(fs []*family) {
	if len(fs) < 2 {
		return
	}
	var differ []column
	for _, c := range columns() {
		if slices.ContainsFunc(fs, func(f *family) bool {
			return slices.ContainsFunc(fs, func(o *family) bool { return c.tells(f.key, o.key) })
		}) {
			differ = append(differ, c)
		}
	}
	seen := map[string]bool{}
	for i, f := range fs {
		var words []string
		for _, c := range differ {
			words = append(words, c.text(f.key))
		}
		for _, v := range f.facts {
			words = append(words, v.value)
		}
		f.suffix = slug(strings.Join(words, "_"))
		if f.suffix == "" || seen[f.suffix] {
			f.suffix = strings.Trim(fmt.Sprintf("%s_%d", f.suffix, i+1), "_")
		}
		seen[f.suffix] = true
	}
}

// slug is text fit for a file's name on any system.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r > unicode.MaxASCII:
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-':
			return unicode.ToLower(r)
		}
		return '-'
	}, s)
	if len(s) > 60 {
		s = s[:60]
	}
	return strings.Trim(s, "-_")
}

// rows of a family with a condition.
func (f *family) rows(keep func(*results.Cell, *results.Configuration) bool) []row {
	var out []row
	for _, c := range f.cells {
		for i := range c.Configurations {
			if keep(c, &c.Configurations[i]) {
				out = append(out, row{cell: c, conf: &c.Configurations[i]})
			}
		}
	}
	return out
}

// values lists a number of the cells, sorted, each once.
func (f *family) values(of func(results.CellKey) int) []int {
	var out []int
	for _, c := range f.cells {
		out = append(out, of(c.Key))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func batchOf(k results.CellKey) int { return k.Batch }
func gpusOf(k results.CellKey) int  { return k.GPUs }

// configurations lists the keys of rows in the order they are shown: eager
// first, events before host joins.
func configurations(rows []row) []results.ConfigurationKey {
	var out []results.ConfigurationKey
	for _, r := range rows {
		if !slices.Contains(out, r.conf.Key) {
			out = append(out, r.conf.Key)
		}
	}
	rank := func(words []string, w string) int {
		if i := slices.Index(words, w); i >= 0 {
			return i
		}
		return len(words)
	}
	modes, syncs, controls := []string{"eager", "graph", "step", "loop"}, []string{"event", "host", "inside"}, []string{"device", "host"}
	slices.SortStableFunc(out, func(a, b results.ConfigurationKey) int {
		return cmp.Or(
			cmp.Compare(a.DispatchNs, b.DispatchNs),
			cmp.Compare(rank(controls, a.Control), rank(controls, b.Control)),
			cmp.Compare(rank(modes, a.Mode), rank(modes, b.Mode)), cmp.Compare(a.Mode, b.Mode),
			cmp.Compare(rank(syncs, a.Sync), rank(syncs, b.Sync)), cmp.Compare(a.Sync, b.Sync),
			cmp.Compare(a.Launcher, b.Launcher), cmp.Compare(a.Ranks, b.Ranks),
		)
	})
	return out
}

// labels names configurations by what tells them apart.
func labels(keys []results.ConfigurationKey) map[results.ConfigurationKey]string {
	differ := func(of func(results.ConfigurationKey) string) bool {
		return slices.ContainsFunc(keys, func(k results.ConfigurationKey) bool { return of(k) != of(keys[0]) })
	}
	// Joins inside the graph are mode step's only way and tell nothing.
	sync := func(k results.ConfigurationKey) string {
		if k.Sync == "inside" {
			return ""
		}
		return k.Sync
	}
	control := differ(func(k results.ConfigurationKey) string { return k.Control })
	opts := slices.DeleteFunc(options(), func(o option) bool { return !differ(o.text) })
	out := map[results.ConfigurationKey]string{}
	for _, k := range keys {
		s := plain(k.Mode)
		if y := plain(sync(k)); y != "" {
			s += "/" + y
		}
		if control {
			s += ", " + plain(k.Control) + " control"
		}
		for _, o := range opts {
			if o.name == "dispatch" {
				if k.DispatchNs != 0 {
					s += ", +" + o.text(k) + " a launch"
				}
				continue
			}
			s += ", " + o.text(k)
		}
		out[k] = s
	}
	// Long names are shortened where they are drawn and may then look alike.
	for _, s := range out {
		if len([]rune(s)) > 36 {
			for i, k := range keys {
				out[k] = fmt.Sprintf("%d: %s", i+1, out[k])
			}
			break
		}
	}
	return out
}

// assign gives each configuration the look that it has in every picture:
// warm colours for eager, cold ones for captured, dashes for host joins.
func assign(keys []results.ConfigurationKey) map[results.ConfigurationKey]look {
	all := looks()
	used := [maxLines]bool{}
	out := map[results.ConfigurationKey]look{}
	preferred := map[string]int{"eager/event": 0, "eager/host": 1, "graph/event": 2, "graph/host": 3, "step/inside": 4}
	for _, k := range keys {
		if i, ok := preferred[k.Mode+"/"+k.Sync]; ok && !used[i] {
			used[i], out[k] = true, all[i]
		}
	}
	for _, k := range keys {
		if _, ok := out[k]; ok {
			continue
		}
		for j := range all {
			if i := (j + 5) % maxLines; !used[i] {
				used[i], out[k] = true, all[i]
				break
			}
		}
	}
	return out
}

func captured(k results.ConfigurationKey) bool { return k.Mode != "eager" }

// eagerBase is the eager configuration that others are compared with: with
// event joins and no dispatch burnt, under the same control if there is one.
func eagerBase(c *results.Cell, control string) *results.Configuration {
	var best *results.Configuration
	score := func(x *results.Configuration) int {
		n := 0
		if x.Key.Sync == "event" {
			n += 2
		}
		if x.Key.Control == control {
			n++
		}
		if !x.Key.SecondLauncher() {
			n += 4
		}
		return n
	}
	for i := range c.Configurations {
		x := &c.Configurations[i]
		if captured(x.Key) || x.Key.DispatchNs != 0 {
			continue
		}
		if best == nil || score(x) > score(best) {
			best = x
		}
	}
	return best
}

// stepRatio is base over other in step time: as stored, in either direction,
// or else the quotient of the medians, which has no interval.
func stepRatio(c *results.Cell, base, other *results.Configuration) (f figure, stored, ok bool) {
	candidates := shownRatios(c)
	if h := c.Headline.Ratio; h != nil && (h.Metric == results.StepTimeNs || h.Metric == "") {
		candidates = append(candidates, h)
	}
	for _, r := range candidates {
		if r.Base == base.Key && r.Other == other.Key {
			if f, ok := ratioFigure(r); ok {
				return f, true, true
			}
		}
		if r.Base == other.Key && r.Other == base.Key {
			if f, ok := ratioFigure(r); ok {
				return inverse(f), true, true
			}
		}
	}
	b, okBase := figureOf(base, results.StepTimeNs)
	o, okOther := figureOf(other, results.StepTimeNs)
	if !okBase || !okOther || !drawable(b.value) || !drawable(o.value) {
		return figure{}, false, false
	}
	f = figure{value: b.value / o.value}
	return f, false, drawable(f.value)
}

func inverse(f figure) figure {
	f.value = 1 / f.value
	if i := f.interval; i != nil {
		// An end at or below 0 has no inverse: usable drops what it makes.
		turned := *i
		turned.Low, turned.High = 1/i.High, 1/i.Low
		f.interval = usable(&turned)
	}
	return f
}

// bestCaptured is the headline's configuration, or the fastest captured one.
func bestCaptured(c *results.Cell) *results.Configuration {
	var best *results.Configuration
	var least float64
	for i := range c.Configurations {
		x := &c.Configurations[i]
		if !captured(x.Key) || x.Key.DispatchNs != 0 {
			continue
		}
		if h := c.Headline.Ratio; h != nil && h.Other == x.Key {
			return x
		}
		f, ok := figureOf(x, results.StepTimeNs)
		if ok && drawable(f.value) && (best == nil || f.value < least) {
			best, least = x, f.value
		}
	}
	return best
}

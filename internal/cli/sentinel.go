package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
)

// How large a slowdown is put in: the larger of a share and so many times the
// noise of a run's median.
const (
	injectedShare = 0.05
	injectedNoise = 5
)

// slowdown is how large a share of a row is put in, by the noise of a run's median.
func slowdown(noise float64) float64 { return max(injectedShare, injectedNoise*noise) }

// sentinel tests the guard on a cell of its own; nil where there was no time,
// or it is switched off.
func (n *nightly) sentinel(ctx context.Context, o *outcome) (*history.Sentinel, error) {
	if n.config.Sentinel.Off || n.omitted("sentinel") {
		return nil, nil
	}
	fmt.Fprintln(n.env.Stderr, "testing the guard on the sentinel")
	t := &trials{n: n, processes: n.config.Sentinel.Processes}
	s, err := t.both(ctx)
	var late *lateError
	if errors.As(err, &late) {
		return nil, n.leaveOut("sentinel", "the sentinel: there was no time for it before the deadline")
	}
	var input *bench.InputError
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.As(err, &input):
		return nil, err
	default:
		// The night's own verdict does not hang on it.
		n.warn("sentinel_failed", "the guard could not be tested: "+err.Error())
		return nil, nil
	}
	for _, side := range t.kept {
		k, err := n.store.Keep(side.Name, side.Record)
		if err != nil {
			return nil, err
		}
		o.records = append(o.records, k)
	}
	return s, nil
}

// lateError says that there was no time.
type lateError struct{}

func (*lateError) Error() string { return "there was no time" }

// trials are the null and the injected one.
type trials struct {
	n         *nightly
	processes int
	kept      []guard.Named
}

// both runs the null trial, sizes the slowdown by what it shows of the noise,
// and runs the injected one on processes of its own.
func (t *trials) both(ctx context.Context) (*history.Sentinel, error) {
	null, err := t.gather(ctx, "null", t.processes, nil)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(null.Rows, func(r guard.Row) bool { return r.Key.Metric == results.SubmitTimeNs })
	if at < 0 {
		return nil, errors.New("the sentinel has no submit time")
	}
	row := null.Rows[at]
	s := &history.Sentinel{Row: row.Key.String(), SubGraph: t.n.config.Sentinel.SubGraph, Noise: noiseWithin(row)}
	s.Factor = slowdown(s.Noise)
	s.Ns = int64(math.Ceil(s.Factor * results.Median(slices.Concat(row.Base[0], row.Head[0]))))
	if s.Null, err = t.trial(ctx, "null", null, nil, nil, nil); err != nil {
		return nil, err
	}
	inject := &results.Injection{SubGraph: s.SubGraph, Ns: s.Ns}
	slowed, err := t.gather(ctx, "injected", t.processes, inject)
	if err != nil {
		return nil, err
	}
	s.Injected, err = t.trial(ctx, "injected", slowed, inject, &row.Key, &s.Noise)
	return s, err
}

// noiseWithin is the relative standard deviation of a run's median, from two
// runs of one program in turns, the larger of two figures: by the medians of
// their halves, and by how much single processes differ, as a median's of so
// many independent ones. Four halves alone were tried: on a busy machine they
// may lie close by chance, and the slowdown was then lost among processes that
// differ by a tenth.
func noiseWithin(r guard.Row) float64 {
	var runs, single [][]float64
	for _, v := range slices.Concat(r.Base[0], r.Head[0]) {
		single = append(single, []float64{v})
	}
	noise := 0.0
	if each := guard.Noise(single); each != nil {
		noise = math.Sqrt(math.Pi/2/float64(len(r.Base[0]))) * *each
	}
	for _, side := range [][]float64{r.Base[0], r.Head[0]} {
		half := len(side) / 2
		runs = append(runs, side[:half], side[half:])
	}
	if halves := guard.Noise(runs); halves != nil {
		noise = max(noise, *halves)
	}
	return noise
}

// gather measures two sides in turns. Head is slowed if there is something to
// inject; base never is.
func (t *trials) gather(ctx context.Context, name string, processes int, inject *results.Injection) (*guard.Gathered, error) {
	var sides [2][]guard.Named
	var list []*measurement
	for i, side := range []string{results.BaseSide, results.HeadSide} {
		m := &measurement{env: t.n.env, file: t.n.tonight(name + "-" + side + ".json"), flags: strings.Fields(t.n.config.Sentinel.Run)}
		if i == 1 {
			m.inject = inject
		}
		list = append(list, m)
	}
	done, err := alternate(ctx, list, processes, t.n.left)
	if err != nil {
		return nil, err
	}
	if done < processes {
		return nil, &lateError{}
	}
	for i, m := range list {
		r, err := m.record()
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, fmt.Errorf("the sentinel's %s was not measured", m.file)
		}
		named := guard.Named{Name: "sentinel " + name + " " + []string{"base", "head"}[i], Record: r}
		sides[i], t.kept = []guard.Named{named}, append(t.kept, named)
	}
	g, err := guard.Gather(sides[0], sides[1])
	if err != nil {
		return nil, err
	}
	if len(g.Rows) == 0 || len(g.Partial) > 0 {
		return nil, fmt.Errorf("the sentinel's %s trial is not complete: %v", name, g.Partial)
	}
	return g, nil
}

// trial judges as a night is judged: what is slower is measured again. key is
// the row that counts, nil for all.
func (t *trials) trial(ctx context.Context, name string, g *guard.Gathered, inject *results.Injection, key *results.RowKey, noise *float64) (history.Trial, error) {
	options := guard.DefaultOptions()
	for i := range g.Rows {
		if key != nil && g.Rows[i].Key == *key {
			g.Rows[i].Noise = noise
		}
	}
	counts := func(rows []results.RowVerdict) (bool, string) {
		if key == nil {
			return guard.Overall(rows, false) == results.Slower, guard.Overall(rows, false)
		}
		i := slices.IndexFunc(rows, func(v results.RowVerdict) bool { return v.Row == *key })
		return i >= 0 && rows[i].Verdict == results.Slower, rows[max(i, 0)].Verdict
	}
	first := guard.Decide(g.Rows, options)
	var out history.Trial
	out.First, out.Verdict = counts(first)
	for _, v := range first {
		if key != nil && v.Row == *key || key == nil && v.Verdict != results.Same {
			out.Why = v.Why
		}
	}
	if len(guard.ToConfirm(first)) == 0 {
		return out, nil
	}
	again, err := t.gather(ctx, name+"-again", t.n.config.ConfirmProcesses, inject)
	if err != nil {
		return out, err
	}
	// No change of the machine to look for: base's second measurement is not set
	// against its first, which was minutes before.
	out.Final, out.Verdict = counts(guard.Confirm(first, guard.Again{Rows: again.Rows}, options))
	return out, nil
}

package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/tech-renaissance/trbench/results"
)

// Check runs the reference and every other configuration from the session's
// snapshot and compares what they leave behind, bit for bit. Without another
// one the reference runs twice and must repeat itself. A difference is a
// [*DisagreementError] without its Cell. The evidence names what ran, in
// order.
func Check(ctx context.Context, s Session, reference results.ConfigurationKey, others []results.ConfigurationKey, steps int) (results.Verify, error) {
	v := results.Verify{Steps: steps}
	run := func(k results.ConfigurationKey) (State, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x, err := s.Executor(k)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k, err)
		}
		if err := s.Restore(); err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		if err := x.Rehearse(steps); err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		st, err := x.State()
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", k, err)
		}
		v.Modes = append(v.Modes, label(k))
		return st, nil
	}
	want, err := run(reference)
	if err != nil {
		return v, err
	}
	v.Tensors, v.Bytes = want.Tensors(), want.Bytes()
	others = slices.DeleteFunc(slices.Clone(others), func(k results.ConfigurationKey) bool { return k == reference })
	if len(others) == 0 {
		others = append(others, reference)
	}
	for _, k := range others {
		got, err := run(k)
		if err != nil {
			return v, err
		}
		if d := got.Diff(want); d != nil {
			return v, &DisagreementError{Reference: reference, Other: k,
				Rank: d.Rank, Tensor: d.Tensor, Index: d.Index, Detail: d.Detail}
		}
	}
	v.Equal = true
	return v, s.Restore()
}

package worker

import "github.com/tech-renaissance/trbench/workloads"

// TrainSteps are n steps of a variant on alternating halves, from a half on.
func TrainSteps(v workloads.Variant, n int, from workloads.Half) []workloads.Segment {
	out := make([]workloads.Segment, n)
	for i := range out {
		out[i] = workloads.Segment{Phase: workloads.TrainStep, Half: from, Variant: v}
		from = from.Other()
	}
	return out
}

// Epoch is a training epoch: n steps of the full variant, then, if last, one
// of the last batch of the same resolution. v is the full variant.
func Epoch(v workloads.Variant, n int, last bool) []workloads.Segment {
	out := []workloads.Segment{{Phase: workloads.EpochBegin, Variant: v}}
	out = append(out, TrainSteps(v, n, workloads.A)...)
	if last {
		half := workloads.Half(n % 2)
		out = append(out, TrainSteps(v+1, 1, half)...)
		n++
	}
	return append(out, workloads.Segment{Phase: workloads.EpochEnd, Half: workloads.Half((n - 1) % 2), Variant: v})
}

// Validation is n batches of full size, then, if last, one of the last batch.
func Validation(n int, last bool) []workloads.Segment {
	out := []workloads.Segment{{Phase: workloads.ValBegin, Variant: workloads.ValFull}}
	half := workloads.A
	batch := func(v workloads.Variant) {
		out = append(out, workloads.Segment{Phase: workloads.ValBatch, Half: half, Variant: v, First: len(out) == 1})
		half = half.Other()
	}
	for range n {
		batch(workloads.ValFull)
	}
	if last {
		batch(workloads.ValLast)
	}
	return append(out, workloads.Segment{Phase: workloads.ValEnd, Half: half.Other(), Variant: workloads.ValFull})
}

// Script is what a check runs: for each resolution among the variants an epoch
// of n steps with a last batch, then a validation of n batches with a last
// one, then the stand-alone chain; what is not prepared is left out.
func Script(variants []workloads.Variant, n int) []workloads.Segment {
	var have [workloads.NumVariants]bool
	for _, v := range variants {
		have[v] = true
	}
	var out []workloads.Segment
	for v := workloads.BeginFull; v < workloads.NumVariants; v += 2 {
		var part []workloads.Segment
		switch {
		case have[v] && v.Val():
			part = Validation(n, have[v+1])
		case have[v]:
			part = Epoch(v, n, have[v+1])
		case have[v+1] && v.Val():
			part = onlyLast(Validation(0, true), v+1)
		case have[v+1]:
			// Each last batch ends an epoch.
			for range n {
				part = append(part, onlyLast(Epoch(v, 0, true), v+1)...)
			}
		}
		out = append(out, part...)
	}
	if len(variants) > 0 {
		out = append(out, workloads.Segment{Phase: workloads.Simple, Variant: variants[0]})
	}
	return out
}

// onlyLast moves an epoch's begin and end to the last variant.
func onlyLast(segments []workloads.Segment, v workloads.Variant) []workloads.Segment {
	for i := range segments {
		segments[i].Variant = v
	}
	return segments
}

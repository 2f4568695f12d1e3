package workloads

import (
	"fmt"
	"math"
)

// DefaultHyper returns the constants a run uses when nothing else is said:
// 64 steps of linear warm-up, then a cosine to zero over the table.
func DefaultHyper(o Optimizer) Hyper {
	peak := 0.05
	if o == LARS {
		peak = 2
	}
	return Hyper{
		LearningRates:    CosineRates(peak, 64, MaxLearningRates),
		Momentum:         0.9,
		WeightDecay:      5e-4,
		Trust:            1e-3,
		EMADecay:         0.99,
		BNEpsilon:        1e-5,
		BNMomentum:       0.1,
		InitialScale:     1024,
		GrowthInterval:   2000,
		StopAfter:        100,
		UnbiasedVariance: true,
	}
}

// CosineRates is a schedule of total steps: linear from peak/warmup to peak,
// then half a cosine down to zero.
func CosineRates(peak float64, warmup, total int) []float32 {
	rates := make([]float32, total)
	for k := range rates {
		if k < warmup {
			rates[k] = float32(peak * float64(k+1) / float64(warmup))
			continue
		}
		x := float64(k-warmup) / float64(max(total-warmup, 1))
		rates[k] = float32(peak * 0.5 * (1 + math.Cos(math.Pi*x)))
	}
	return rates
}

// Defaults returns the spec with every zero field that has a default filled
// in. It fails only on an unknown model.
func (s Spec) Defaults() (Spec, error) {
	m, err := findModel(s.Model)
	if err != nil {
		return s, err
	}
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&s.Ranks, 1)
	def(&s.FinalResolution, m.resolution)
	def(&s.BeginResolution, s.FinalResolution)
	def(&s.LastTrainBatch, s.Batch)
	def(&s.LastValBatch, s.Batch)
	def(&s.BatchNormGroups, 1)
	if s.Precision == "" {
		s.Precision = FP32
	}
	if s.Optimizer == "" {
		s.Optimizer = SGD
	}
	if s.Hyper.LearningRates == nil {
		s.Hyper = DefaultHyper(s.Optimizer)
	}
	return s, nil
}

// Validate says, in one sentence, the first thing wrong with a spec whose
// defaults are filled in.
func (s Spec) Validate() error {
	m, err := findModel(s.Model)
	if err != nil {
		return err
	}
	for _, r := range []struct {
		what string
		v    int
	}{{"begin", s.BeginResolution}, {"final", s.FinalResolution}} {
		if r.v < m.multiple || r.v%m.multiple != 0 {
			return fmt.Errorf("%s resolution %d: %s needs a multiple of %d, at least %d", r.what, r.v, s.Model, m.multiple, m.multiple)
		}
		if r.v > 4096 {
			return fmt.Errorf("%s resolution %d: at most 4096", r.what, r.v)
		}
	}
	switch {
	case s.Batch < 1 || s.Batch > 1<<16:
		return fmt.Errorf("batch %d: must be 1 to 65536", s.Batch)
	case s.Ranks < 1:
		return fmt.Errorf("gpus %d: must be at least 1", s.Ranks)
	case s.LastTrainBatch < 1 || s.LastTrainBatch > s.Batch:
		return fmt.Errorf("last training batch %d: must be 1 to the batch, %d", s.LastTrainBatch, s.Batch)
	case s.LastValBatch < 1 || s.LastValBatch > s.Batch:
		return fmt.Errorf("last validation batch %d: must be 1 to the batch, %d", s.LastValBatch, s.Batch)
	case s.Precision != FP32 && s.Precision != AMP:
		return fmt.Errorf("unknown precision %q; known: %s, %s", s.Precision, FP32, AMP)
	case s.Optimizer != SGD && s.Optimizer != Nesterov && s.Optimizer != LARS:
		return fmt.Errorf("unknown optimizer %q; known: %s, %s, %s", s.Optimizer, SGD, Nesterov, LARS)
	case !(s.Smoothing >= 0 && s.Smoothing < 1):
		return fmt.Errorf("smoothing %v: must be at least 0 and below 1", s.Smoothing)
	case len(s.Hyper.LearningRates) < 1 || len(s.Hyper.LearningRates) > MaxLearningRates:
		return fmt.Errorf("learning rates: 1 to %d of them, not %d", MaxLearningRates, len(s.Hyper.LearningRates))
	case s.BatchNormGroups < 1 || s.Batch%s.BatchNormGroups != 0 ||
		s.LastTrainBatch%s.BatchNormGroups != 0:
		return fmt.Errorf("batch norm groups %d: must divide the batches", s.BatchNormGroups)
	}
	return nil
}

package bench

import (
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Spec is the workload a cell names, defaults not filled in.
func Spec(c results.CellKey) workloads.Spec {
	return workloads.Spec{
		Model: c.Workload, Batch: c.Batch, Ranks: c.GPUs,
		Precision: workloads.Precision(c.Precision), Optimizer: workloads.Optimizer(c.Optimizer),
		EMA: c.EMA, Smoothing: c.Smoothing, FreezeStem: c.Frozen,
		BeginResolution: c.Resolution.Begin, FinalResolution: c.Resolution.Final,
		LastTrainBatch: c.LastBatch.Train, LastValBatch: c.LastBatch.Val,
	}
}

// Complete fills in what the workload has a default for, so that equal cells
// have equal keys. It fails only on an unknown workload.
func Complete(c results.CellKey) (results.CellKey, error) {
	s, err := Spec(c).Defaults()
	if err != nil {
		return c, err
	}
	c.GPUs, c.Precision, c.Optimizer = s.Ranks, string(s.Precision), string(s.Optimizer)
	c.Resolution = results.Resolution{Begin: s.BeginResolution, Final: s.FinalResolution}
	c.LastBatch = results.LastBatch{Train: s.LastTrainBatch, Val: s.LastValBatch}
	return c, nil
}

package workloads

// Schedule returns the actions of a segment in submission order, empty slots
// left out. This is the one place that says what a step does and what waits
// for what; every mode walks it.
//
// A join is listed where the data of two sub-graphs is at stake, and left out
// where it could order nothing: its waited stream got no work since the same
// join before, or its waiter gets none until the same join behind.
func (w *Workload) Schedule(seg Segment) []Action { return prune(w.script(seg)) }

// script is the schedule before joins that order nothing are left out.
func (w *Workload) script(seg Segment) []Action {
	s := script{w: w, v: seg.Variant}
	h := seg.Half
	switch seg.Phase {
	case EpochBegin:
		s.run(ClearMetrics)
		s.feed(A)
		s.join("input", COMP1, TRANS)
	case TrainStep:
		s.train(h)
	case EpochEnd:
		s.run(ValResultComm)
	case ValBegin:
		s.run(ClearMetrics, UpdateBNInf, CastEMA)
	case ValBatch:
		s.validate(h, seg.First)
	case ValEnd:
		s.join("consumed", TRANS, COMP1)
		s.run(ValResultComm)
	case Simple:
		s.run(SimpleTask)
	}
	return s.list
}

// script collects actions.
type script struct {
	w    *Workload
	v    Variant
	list []Action
}

// run submits the sub-graphs whose slots are filled.
func (s *script) run(ids ...SubGraph) {
	for _, id := range ids {
		if s.w.slots[s.v][id].Filled {
			s.list = append(s.list, Action{Kind: ActRun, SubGraph: id})
		}
	}
}

// join makes the waiter wait for each of the streams.
func (s *script) join(name string, waiter Stream, waited ...Stream) {
	for _, x := range waited {
		s.list = append(s.list, Action{Kind: ActJoin, Join: name, Waiter: waiter, Waited: x})
	}
}

// feed fills a pinned half and transfers it.
func (s *script) feed(h Half) {
	s.list = append(s.list, Action{Kind: ActFeed, Half: h})
	s.run(TransferA + SubGraph(h))
}

func (s *script) train(h Half) {
	last := s.v.Last()
	s.run(ZeroGrad, FirstLayerFwdA+SubGraph(h))
	if !last {
		s.feed(h.Other()) // the next batch, beside this step
	}
	s.join("forward", COMP1, UPDATE) // gradients are zero
	s.run(DeepFwdBwd)
	s.join("deep", UPDATE, COMP1)
	s.run(FirstLayerBwdA + SubGraph(h))
	s.run(CastDeepGrad, DeepComm)
	s.join("backward", UPDATE, COMP1)
	s.join("consumed", TRANS, COMP1) // whoever refills a half: the next step or, behind the last, the next epoch
	s.run(CastFirstGrad, FirstComm)
	if last {
		s.run(AccumTrainLast)
	} else {
		s.run(AccumMetrics)
	}
	s.run(NaNCheck, StatsComm, UpdateStats)
	s.list = append(s.list, Action{Kind: ActControl})
	var lars []Stream
	for _, g := range []SubGraph{LARSFC, LARSFirstConv, LARSDeepConv} {
		if s.w.slots[s.v][g].Filled {
			lars = append(lars, g.Info().Stream)
			s.join("control", g.Info().Stream, UPDATE) // unscaled gradients, learning rate, skip
		}
	}
	s.run(OptimizerUpdate, LARSFC, LARSFirstConv, LARSDeepConv)
	s.join("optimizer", UPDATE, lars...) // weights are new
	s.run(EMAUpdate, CastMain)
	if !last {
		s.join("next", COMP1, TRANS)
	}
	s.update()
}

// update joins the next step's stem forward with UPDATE: new weights; the
// statistics were read. A frozen stem without half weights has nothing to wait
// for behind the finite check: if COMP_1 waited for UPDATE there, as it does for
// LARS, or the host did, as it does with host control, the next "forward" join
// is soon enough.
func (s *script) update() {
	p := s.w.Spec
	fixed := p.FreezeStem && p.Precision == FP32
	if fixed && p.Optimizer == LARS {
		return
	}
	s.join("update", COMP1, UPDATE)
	s.list[len(s.list)-1].DeviceControl = fixed
}

func (s *script) validate(h Half, first bool) {
	s.feed(h)
	s.join("input", COMP1, TRANS)
	s.join("forward", COMP1, UPDATE) // inference parameters; the step result was read
	if !first {
		s.join("consumed", TRANS, COMP1) // the other half was read, before this batch's inference
	}
	s.run(InfMainA+SubGraph(h), InfEMAA+SubGraph(h))
	s.join("result", UPDATE, COMP1)
	if s.v.Last() {
		s.run(AccumValLast)
	} else {
		s.run(AccumMetrics)
	}
}

// prune drops joins that order nothing within a segment. The first join of a
// kind stays unless a later one covers it, since earlier segments may have
// left work on the waited stream.
func prune(list []Action) []Action {
	keep := list
	for changed := true; changed; {
		changed = false
		for i, a := range keep {
			if a.Kind == ActJoin && (staleBefore(keep[:i], a) || coveredAfter(keep[i+1:], a)) {
				keep = append(append([]Action(nil), keep[:i]...), keep[i+1:]...)
				changed = true
				break
			}
		}
	}
	return keep
}

// sameEdge says that join o makes the same streams wait, wherever a does.
func (a Action) sameEdge(o Action) bool {
	return o.Kind == ActJoin && o.Waiter == a.Waiter && o.Waited == a.Waited && (!o.DeviceControl || a.DeviceControl)
}

// staleBefore: since the same join, the waited stream got neither work nor a
// wait for another stream than the waiter.
func staleBefore(before []Action, a Action) bool {
	for i := len(before) - 1; i >= 0; i-- {
		switch p := before[i]; {
		case p.sameEdge(a):
			return true
		case p.Kind == ActRun && p.SubGraph.Info().Stream == a.Waited:
			return false
		case p.Kind == ActJoin && p.Waiter == a.Waited && p.Waited != a.Waiter:
			return false
		}
	}
	return false
}

// coveredAfter: the waiter gets neither work nor is waited for until an equal
// join.
func coveredAfter(after []Action, a Action) bool {
	for _, n := range after {
		switch {
		case n.sameEdge(a):
			return true
		case n.Kind == ActRun && n.SubGraph.Info().Stream == a.Waiter:
			return false
		case n.Kind == ActJoin && n.Waited == a.Waiter:
			return false
		case n.Kind == ActControl && a.Waiter == UPDATE:
			return false
		}
	}
	return false
}

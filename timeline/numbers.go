package timeline

// numbers keeps a small number for each correlation. Readers number
// correlations from 1 on, so that a slice serves, which takes a tenth of a map's
// memory and time; numbers that are far apart still work.
type numbers struct {
	dense  []int32
	sparse map[int64]int32
}

func newNumbers(t *Timeline) *numbers {
	most := int64(0)
	for i := range t.Calls {
		most = max(most, t.Calls[i].Correlation)
	}
	for i := range t.Ops {
		most = max(most, t.Ops[i].Correlation)
	}
	n := &numbers{}
	if limit := int64(len(t.Calls)+len(t.Ops))*4 + 1024; most < limit {
		n.dense = make([]int32, most+1)
	} else {
		n.sparse = make(map[int64]int32, len(t.Calls))
	}
	return n
}

// get is 0 for what was never set.
func (n *numbers) get(correlation int64) int32 {
	if correlation >= 0 && correlation < int64(len(n.dense)) {
		return n.dense[correlation]
	}
	return n.sparse[correlation]
}

func (n *numbers) set(correlation int64, v int32) {
	if correlation >= 0 && correlation < int64(len(n.dense)) {
		n.dense[correlation] = v
		return
	}
	if n.sparse == nil {
		n.sparse = make(map[int64]int32)
	}
	n.sparse[correlation] = v
}

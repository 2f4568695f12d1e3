package walk

import (
	"fmt"
	"unsafe"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/workloads"
)

// TableEntries is the number of slots in an execution table: one for every
// (variant, sub-graph), filled or not.
const TableEntries = int(workloads.NumVariants) * int(workloads.NumSubGraphs)

// Cell is the place of a slot in an execution table.
func Cell(id workloads.SubGraph, v workloads.Variant) int {
	return int(v)*int(workloads.NumSubGraphs) + int(id)
}

// Entry is what an execution table holds for one slot.
type Entry struct {
	// Ops are the prepared operators in submission order; nil in an empty slot.
	Ops []device.Op
	// Copies is how many of them are transfers.
	Copies int
	// Calls is the number of submitting calls they take.
	Calls int
}

// Table resolves (variant, sub-graph, control) to prepared operators of one
// rank, densely. Slots that share an owner share the operators. Beside them it
// keeps the rank's join events, which every configuration uses in turn. A
// table belongs to its rank's thread; its operators never change.
type Table struct {
	w        *workloads.Workload
	events   *Events
	halves   [2]*Feed // that wrote each pinned half last
	variants []workloads.Variant
	entries  [2][TableEntries]Entry
	ops      int
	owned    int
	filled   int
	bytes    int64
	tool     *nvtx.Client
	shown    *shownTable // nil without a tool
}

// Prepare resolves every operator of the filled slots of the variants. It
// runs on the rank's thread. The first operator that cannot be prepared ends
// it, by name.
func Prepare(r device.Rank, w *workloads.Workload, variants []workloads.Variant) (*Table, error) {
	t := &Table{w: w, events: NewEvents(r), variants: append([]workloads.Variant(nil), variants...)}
	type key struct {
		id    workloads.SubGraph
		owner workloads.Variant
	}
	made := map[key][2]Entry{}
	for _, v := range variants {
		for id := range workloads.NumSubGraphs {
			slot := w.Slot(id, v)
			if !slot.Filled {
				continue
			}
			t.filled++
			k := key{id, slot.Owner}
			pair, ok := made[k]
			if !ok {
				var err error
				if pair, err = t.prepareSlot(r, id, slot.Owner); err != nil {
					return nil, fmt.Errorf("prepare %s (%s): %w", id, slot.Owner, err)
				}
				made[k] = pair
				t.owned++
			}
			t.entries[workloads.ControlDevice][Cell(id, v)] = pair[workloads.ControlDevice]
			t.entries[workloads.ControlHost][Cell(id, v)] = pair[workloads.ControlHost]
		}
	}
	t.bytes += int64(unsafe.Sizeof(t.entries))
	return t, nil
}

// prepareSlot prepares an owner's operators once and lists them for both
// controls.
func (t *Table) prepareSlot(r device.Rank, id workloads.SubGraph, owner workloads.Variant) (pair [2]Entry, err error) {
	byNode := map[*workloads.Node]device.Op{}
	for _, c := range []workloads.Control{workloads.ControlDevice, workloads.ControlHost} {
		bounds := t.w.Bounds(id, owner, c)
		ops := make([]device.Op, 0, len(bounds))
		for _, b := range bounds {
			op := byNode[b.Node]
			if op == nil {
				if op, err = r.Prepare(b); err != nil {
					return pair, fmt.Errorf("operator %d %s (%s): %w", b.Index, b.Name, b.Op, err)
				}
				byNode[b.Node] = op
				t.ops++
			}
			ops = append(ops, op)
			if b.Op == workloads.OpCopyIn {
				pair[c].Copies++
			}
			pair[c].Calls += op.Calls()
		}
		pair[c].Ops = ops
		t.bytes += int64(cap(ops)) * int64(unsafe.Sizeof(device.Op(nil)))
	}
	return pair, nil
}

// Workload is what the table was prepared for.
func (t *Table) Workload() *workloads.Workload { return t.w }

// Events are the rank's join events. One user at a time: whoever records them
// has drained the rank before.
func (t *Table) Events() *Events { return t.events }

// Variants lists the prepared variants. The caller must not change it.
func (t *Table) Variants() []workloads.Variant { return t.variants }

// Entry returns a slot's operators.
func (t *Table) Entry(id workloads.SubGraph, v workloads.Variant, c workloads.Control) *Entry {
	return &t.entries[c][Cell(id, v)]
}

// Ops returns a slot's operators in submission order, nil if the slot is
// empty or its variant was not prepared.
func (t *Table) Ops(id workloads.SubGraph, v workloads.Variant, c workloads.Control) []device.Op {
	return t.entries[c][Cell(id, v)].Ops
}

// TableSize says how large an execution table is.
type TableSize struct {
	Entries  int   // (variant, sub-graph) pairs, filled or not
	Filled   int   // filled slots of the prepared variants
	Owned    int   // slots whose operators were prepared; Filled-Owned are shared
	Prepared int   // operators prepared
	Bytes    int64 // host memory of the table itself, without the operators
}

// Size returns the table's size.
func (t *Table) Size() TableSize {
	return TableSize{Entries: TableEntries, Filled: t.filled, Owned: t.owned, Prepared: t.ops, Bytes: t.bytes}
}

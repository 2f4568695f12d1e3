package workloads

// Node is one operator of a sub-graph, without shapes.
type Node struct {
	// Name says where in the model it stands, "layer2.0.conv1.bwd_data".
	Name string
	Op   Op
	// In and Out are operands in the order the operator states.
	In, Out []TensorID
	Attr    Attr
	// Range marks an operation on a region without image shapes.
	Range bool
	// Collective marks an operation that meets the other ranks.
	Collective bool
	// DeviceControl marks a node that runs only with --control=device.
	DeviceControl bool

	seq int // build order, for [Workload.CheckOrder]
}

// Operand is a tensor as one variant uses it.
type Operand struct {
	Tensor TensorID
	Name   string
	DType  DType
	Shape  Shape
	Region Region // exactly Shape.Elems()*DType.Bytes() bytes
}

// Bound is a node in a variant, with the regions it reads and writes: what a
// device prepares and submits. It is immutable once made.
type Bound struct {
	*Node
	SubGraph SubGraph
	Variant  Variant
	Index    int // position in the sub-graph
	In, Out  []Operand
	// Scratch is memory the operator may use while it runs; its content is
	// undefined before and after. Operators on one stream share it.
	Scratch Region
	// Reads and Writes are all regions touched, Scratch among the writes.
	Reads, Writes []Region
}

// Control says who picks learning rate, loss scale and skip.
type Control uint8

const (
	ControlDevice Control = iota
	ControlHost
)

func (c Control) String() string { return [...]string{"device", "host"}[c] }

// Phase is a part of training that is submitted as a whole.
type Phase uint8

const (
	EpochBegin Phase = iota
	TrainStep
	EpochEnd
	ValBegin
	ValBatch
	ValEnd
	Simple // SIMPLE_TASK_GRAPH alone
	NumPhases
)

func (p Phase) String() string {
	return [...]string{"epoch_begin", "train_step", "epoch_end", "val_begin", "val_batch", "val_end", "simple"}[p]
}

// Segment is one stretch of the schedule: what one submission of mode step
// covers.
type Segment struct {
	Phase   Phase
	Half    Half // the half trained or validated on
	Variant Variant
	First   bool // ValBatch: the first of a validation
}

// ActionKind is what a schedule entry does.
type ActionKind uint8

const (
	// ActRun submits a sub-graph on its stream.
	ActRun ActionKind = iota
	// ActJoin makes later work on Waiter wait for the work now on Waited.
	ActJoin
	// ActFeed fills the pinned half with the next batch, after the transfer
	// that last read it.
	ActFeed
	// ActControl is where --control=host reads the flag and writes scalars.
	// It blocks the host on UPDATE first. Nothing happens with device control.
	ActControl
)

// Action is one entry of the schedule.
type Action struct {
	Kind           ActionKind
	SubGraph       SubGraph
	Waiter, Waited Stream
	Half           Half
	// Join names the join of the schedule that an ActJoin belongs to
	// ("forward", "deep", ...), for messages.
	Join string
	// DeviceControl marks a join that is made only with --control=device: the
	// host's wait for UPDATE orders what it would order.
	DeviceControl bool
}

// Slot is a pair (variant, sub-graph) of the atlas.
type Slot struct {
	SubGraph SubGraph
	Variant  Variant
	Filled   bool
	// Why names the unmet condition of an empty slot.
	Why string
	// Shape identifies the shapes the sub-graph depends on; shape-free ones
	// have an empty one.
	Shape string
	// Owner is the variant whose capture this slot reuses; itself if it is
	// captured.
	Owner Variant
}

// Captured says that the slot is filled and owns its capture.
func (s Slot) Captured() bool { return s.Filled && s.Owner == s.Variant }

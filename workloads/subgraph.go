package workloads

// Stream is one of a rank's ordered queues.
type Stream uint8

const (
	TRANS Stream = iota
	COMP1
	COMP2
	COMP3
	UPDATE
	// NumStreams is the number of device streams a rank has.
	NumStreams
	// HOST stands for the submitting thread where an edge names it.
	HOST = NumStreams
)

func (s Stream) String() string {
	return [...]string{"TRANS", "COMP_1", "COMP_2", "COMP_3", "UPDATE", "HOST"}[s]
}

// Half is one of the two input buffers.
type Half uint8

const (
	A Half = iota
	B
)

func (h Half) String() string { return [...]string{"A", "B"}[h] }

// Other is the half that is not h.
func (h Half) Other() Half { return 1 - h }

// Variant is a shape a step can have.
type Variant uint8

const (
	BeginFull Variant = iota // begin resolution, full batch
	BeginLast                // begin resolution, last batch
	FinalFull                // final resolution, full batch
	FinalLast                // final resolution, last batch
	ValFull                  // validation, full batch
	ValLast                  // validation, last batch
	NumVariants
)

func (v Variant) String() string {
	return [...]string{"begin/full", "begin/last", "final/full", "final/last", "val/full", "val/last"}[v]
}

// Last says whether the variant runs the last batch.
func (v Variant) Last() bool { return v%2 == 1 }

// Val says whether the variant belongs to validation.
func (v Variant) Val() bool { return v >= ValFull }

// AllVariants lists the variants in order.
func AllVariants() []Variant {
	all := make([]Variant, NumVariants)
	for v := range all {
		all[v] = Variant(v)
	}
	return all
}

// SubGraph is one of the units that can be captured on its own.
type SubGraph uint8

const (
	TransferA SubGraph = iota
	TransferB
	FirstLayerFwdA
	FirstLayerFwdB
	DeepFwdBwd
	FirstLayerBwdA
	FirstLayerBwdB
	ZeroGrad
	CastDeepGrad
	CastFirstGrad
	DeepComm
	FirstComm
	NaNCheck
	StatsComm
	UpdateStats
	OptimizerUpdate
	LARSFC
	LARSFirstConv
	LARSDeepConv
	EMAUpdate
	CastMain
	CastEMA
	UpdateBNInf
	InfMainA
	InfMainB
	InfEMAA
	InfEMAB
	AccumMetrics
	AccumTrainLast
	AccumValLast
	ValResultComm
	ClearMetrics
	SimpleTask
	NumSubGraphs
)

// SubGraphInfo is a row of the table of sub-graphs.
type SubGraphInfo struct {
	Name       string
	Stream     Stream
	Collective bool
	ByShape    bool
	// Train and Val say in which steps a by-shape sub-graph runs.
	Train, Val bool
}

var subGraphs = [NumSubGraphs]SubGraphInfo{
	TransferA:       {Name: "TRANSFER_A", Stream: TRANS, Train: true, Val: true},
	TransferB:       {Name: "TRANSFER_B", Stream: TRANS, Train: true, Val: true},
	FirstLayerFwdA:  {Name: "FIRST_LAYER_FWD_A", Stream: COMP1, ByShape: true, Train: true},
	FirstLayerFwdB:  {Name: "FIRST_LAYER_FWD_B", Stream: COMP1, ByShape: true, Train: true},
	DeepFwdBwd:      {Name: "DEEP_FWD_BWD", Stream: COMP1, ByShape: true, Train: true},
	FirstLayerBwdA:  {Name: "FIRST_LAYER_BWD_A", Stream: COMP1, ByShape: true, Train: true},
	FirstLayerBwdB:  {Name: "FIRST_LAYER_BWD_B", Stream: COMP1, ByShape: true, Train: true},
	ZeroGrad:        {Name: "ZERO_GRAD", Stream: UPDATE, Train: true},
	CastDeepGrad:    {Name: "CAST_DEEP_GRAD_FP16_TO_FP32", Stream: UPDATE, Train: true},
	CastFirstGrad:   {Name: "CAST_FIRST_GRAD_FP16_TO_FP32", Stream: UPDATE, Train: true},
	DeepComm:        {Name: "DEEP_COMM", Stream: UPDATE, Collective: true, Train: true},
	FirstComm:       {Name: "FIRST_COMM", Stream: UPDATE, Collective: true, Train: true},
	NaNCheck:        {Name: "NAN_CHECK_AND_GRAD_SCALING", Stream: UPDATE, Train: true},
	StatsComm:       {Name: "STATS_COMM", Stream: UPDATE, Collective: true, Train: true},
	UpdateStats:     {Name: "UPDATE_STATS", Stream: UPDATE, Train: true},
	OptimizerUpdate: {Name: "OPTIMIZER", Stream: UPDATE, Train: true},
	LARSFC:          {Name: "LARS_FC_OPT", Stream: COMP1, Train: true},
	LARSFirstConv:   {Name: "LARS_FIRST_CONV_OPT", Stream: COMP2, Train: true},
	LARSDeepConv:    {Name: "LARS_DEEP_CONV_OPT", Stream: COMP3, Train: true},
	EMAUpdate:       {Name: "EMA_UPDATE", Stream: UPDATE, Train: true},
	CastMain:        {Name: "CAST_MAIN_FP32_TO_FP16", Stream: UPDATE, Train: true},
	CastEMA:         {Name: "CAST_EMA_FP32_TO_FP16", Stream: UPDATE, Val: true},
	UpdateBNInf:     {Name: "UPDATE_BN_INF_PARAMS", Stream: UPDATE, Val: true},
	InfMainA:        {Name: "INF_MAIN_A", Stream: COMP1, ByShape: true, Val: true},
	InfMainB:        {Name: "INF_MAIN_B", Stream: COMP1, ByShape: true, Val: true},
	InfEMAA:         {Name: "INF_EMA_A", Stream: COMP1, ByShape: true, Val: true},
	InfEMAB:         {Name: "INF_EMA_B", Stream: COMP1, ByShape: true, Val: true},
	AccumMetrics:    {Name: "ACCUM_METRICS", Stream: UPDATE, Train: true, Val: true},
	AccumTrainLast:  {Name: "ACCUM_METRICS_TRAIN_LAST", Stream: UPDATE, Train: true},
	AccumValLast:    {Name: "ACCUM_METRICS_VAL_LAST", Stream: UPDATE, Val: true},
	ValResultComm:   {Name: "VAL_RESULT_COMM", Stream: UPDATE, Collective: true, Train: true, Val: true},
	ClearMetrics:    {Name: "CLEAR_METRICS", Stream: UPDATE, Train: true, Val: true},
	SimpleTask:      {Name: "SIMPLE_TASK_GRAPH", Stream: COMP1},
}

// Info returns the sub-graph's row.
func (g SubGraph) Info() SubGraphInfo { return subGraphs[g] }

func (g SubGraph) String() string { return subGraphs[g].Name }

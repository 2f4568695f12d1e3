package workloads

// Precision is how activations and weights are stored while training.
type Precision string

const (
	// FP32 stores everything as IEEE single precision.
	FP32 Precision = "fp32"
	// AMP stores activations, convolution and fully connected weights and
	// their gradients as half precision, keeps FP32 master weights, and
	// scales the loss dynamically.
	AMP Precision = "amp"
)

// Optimizer is the update rule.
type Optimizer string

const (
	SGD      Optimizer = "sgd"      // momentum and weight decay
	Nesterov Optimizer = "nesterov" // the same with Nesterov's look-ahead
	LARS     Optimizer = "lars"     // layer-wise trust ratios on convolution and fully connected weights
)

// Spec names one thing to train, on one rank of Ranks. The zero value of a
// field that has a default is filled in by [Spec.Defaults].
type Spec struct {
	Model     string // a name from [Models]
	Batch     int    // images a rank and step
	Ranks     int    // data-parallel ranks; each has its own arena
	Precision Precision
	Optimizer Optimizer
	EMA       bool // keep exponentially averaged weights
	// Smoothing is the label smoothing factor in [0, 1).
	Smoothing float64
	// FreezeStem excludes the first layer from backward and from updates. Its
	// batch norm still normalises with batch statistics and still updates the
	// running ones.
	FreezeStem bool
	// BeginResolution and FinalResolution are image sides in pixels;
	// validation runs at FinalResolution.
	BeginResolution, FinalResolution int
	// LastTrainBatch and LastValBatch are the images of the last step of a
	// training epoch and of a validation, 1..Batch.
	LastTrainBatch, LastValBatch int

	Hyper Hyper

	// BatchNormGroups makes batch norm work on that many equal groups of the
	// batch, so that one rank can stand in for several. 0 means 1. Only the
	// CPU device supports more than 1; tests use it.
	BatchNormGroups int
	// NoBatchNorm builds the model without batch norm (a bias-free identity
	// takes its place). Tests use it.
	NoBatchNorm bool
	// Inject adds one node at the end of DEEP_FWD_BWD that adds the scalar
	// Fault (device memory, normally 0) to one element of a deep gradient, so
	// that a test can inject an Inf at step k in every mode.
	Inject bool
}

// Hyper holds the constants of the update rule. Those that change while
// training (learning rate, loss scale, skip, step) live in device memory and
// are not here; see [Scalars].
type Hyper struct {
	// LearningRates is the schedule: step k uses element min(k, len-1).
	// At most [MaxLearningRates] elements.
	LearningRates []float32
	Momentum      float32
	WeightDecay   float32 // not applied to batch norm and biases
	Trust         float32 // LARS's trust coefficient
	EMADecay      float32
	BNEpsilon     float32
	BNMomentum    float32 // weight of the new batch statistics in the running ones
	// InitialScale is the loss scale at step 0 (AMP; FP32 uses 1, fixed).
	InitialScale float32
	// GrowthInterval is the number of finite steps after which the loss
	// scale doubles (AMP).
	GrowthInterval int32
	// StopAfter is the number of consecutive skipped steps after which the
	// stop flag rises and every later step is skipped.
	StopAfter int32
	// UnbiasedVariance folds n/(n-1) into the running variance.
	UnbiasedVariance bool
	// DecayBatchNorm applies weight decay to batch norm and biases as well.
	DecayBatchNorm bool
}

// MaxLearningRates is the length of the learning-rate table in the arena.
const MaxLearningRates = 4096

// Target is what a device says of itself before a workload is built for it.
type Target struct {
	// Lowering is the node list the device runs.
	Lowering Lowering
	// ScratchBytes returns the scratch memory an operator needs, 0 for none.
	// It is called with shapes but without offsets. nil means none.
	ScratchBytes func(b *Bound) int64
	// Beside lets filter gradients run beside what follows them: they get
	// scratch of their own, and what they read keeps its bytes for
	// [besideNodes] nodes longer.
	Beside bool
}

// besideNodes is how many nodes a filter gradient may fall behind before one
// of them reuses what it reads: some five layers backward.
const besideNodes = 24

// Lowering selects how graphs become a device's node list.
type Lowering struct {
	// FusedNorm makes batch norm, ReLU and residual add one node.
	FusedNorm bool
	// FusedJoin makes the sum of the two gradients that meet at a residual
	// block's input part of the batch norm backward that reads it. It goes
	// with FusedNorm; the bits are the same.
	FusedJoin bool
	// NormMask lets batch norm's backward read where its ReLU let values
	// through from a mask that forward leaves, instead of from the output
	// itself. It goes with FusedNorm; the bits are the same.
	NormMask bool
	// MultiTensor makes optimizer nodes cover a whole range instead of one
	// parameter tensor each.
	MultiTensor bool
}

var (
	// Plain keeps every operator and every tensor's update apart.
	Plain = Lowering{}
	// Fused is what the devices run by default.
	Fused = Lowering{FusedNorm: true, MultiTensor: true}
)

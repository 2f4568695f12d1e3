package workloads

// Op is an operator. For each, In and Out are the operands in order; T is the
// activation type (F32 or F16); "scalars" is the [Scalars] tensor. Arithmetic
// is FP32 everywhere; F16 operands are converted on load (exactly) and rounded
// to nearest even on store. Reductions run over a fixed tree that depends on
// shapes alone. NaN and Inf propagate as IEEE arithmetic says: 0*Inf is NaN.
type Op uint8

const (
	OpNone Op = iota

	// Compute operators.

	OpConv          // In x, w; Out y. Attr R,S,Stride,Pad. Weights K,R,S,C of type T. Cross-correlation, no bias.
	OpConvBwdData   // In dy, w; Out dx. Overwrites.
	OpConvBwdFilter // In x, dy; Out dw (type T). Overwrites.
	// OpBatchNorm: In x, gamma, beta [, z]; Out y, mean, invstd, statMean, statVar [, mask if Mask].
	// Attr Eps, ReLU, Add, Mask, Groups, Unbiased. y = gamma*(x-mean)*invstd+beta, plus z if
	// Add, then max(0, .) if ReLU (NaN stays NaN). mean and invstd are F32 of Groups*C.
	// statMean and statVar are F32 of C, the mean over groups of the batch mean and of the
	// variance; with Unbiased the variance is multiplied by n/max(n-1,1), n the elements a channel and group.
	// mask (U8 [n,s,s,C/run]) says where y > 0: bit j of byte i is of element i*run+j, run as [MaskRun] says.
	OpBatchNorm
	// OpBatchNormBwd: In x, dy, gamma, mean, invstd [, y if ReLU, or its mask if Mask] [, dy2 if Sum]; Out dx, dgamma,
	// dbeta [, dz if Add]. With Sum dy + dy2, rounded to T, takes the place of dy. With ReLU the incoming gradient is
	// dy where y > 0, else 0. dz is that masked gradient.
	OpBatchNormBwd
	OpReLU        // In x; Out y. max(0, x), NaN stays NaN.
	OpReLUBwd     // In y, dy; Out dx = dy where y > 0, else 0.
	OpAdd         // In a, b; Out a+b.
	OpMaxPool     // In x; Out y, index (U8: row*R+col within the window). Attr R,Stride,Pad. First maximum in row-major order wins; a NaN wins over numbers, the first NaN over later ones.
	OpMaxPoolBwd  // In dy, index; Out dx. Overwrites; dx gathers in row-major order of the windows.
	OpAvgPool     // In x [n,s,s,C]; Out y [n,C]. Mean over the image.
	OpAvgPoolBwd  // In dy [n,C]; Out dx [n,s,s,C].
	OpFC          // In x [n,C], w [K,C] (type T), b (F32 [K]); Out y [n,K].
	OpFCBwdData   // In dy, w; Out dx.
	OpFCBwdFilter // In x, dy; Out dw (type T), db (F32). Overwrites.
	// OpLoss: In logits [n,K], labels (I32 [n]), scalars, step; Out dlogits, step. Softmax cross entropy,
	// mean over n, with Attr Smoothing: target = (1-s)*onehot + s/K. dlogits = (p - target) * scale/n.
	// ADDS to step (F32 [StepWords]) the mean loss (element StepLoss) and the top-1 hits (StepHits; a row is a hit if
	// its label's logit is the first maximum).
	OpLoss
	// OpLossEval: In logits, labels; Out step. As OpLoss without gradient and smoothing; OVERWRITES
	// elements Attr.Slot*2 (mean loss) and Attr.Slot*2+1 (hits); Slot 0 is main, 1 EMA.
	OpLossEval
	OpAffine     // In x, scale (F32 [C]), bias (F32 [C]) [, z]; Out y = x*scale+bias, plus z if Attr.Add, max(0,.) if Attr.ReLU.
	OpCopyLabels // In labels of a half (I32 [n]); Out the fixed labels (I32 [n]).
	OpInject     // In scalars; Out g: g[0] += scalars[ScalarFault], g of type T or F32.

	// Range operators: on regions, without image shapes.

	OpCopyIn      // In pinned bytes; Out arena bytes of the same length.
	OpNormalize   // In raw U8 (flat, 3 channels interleaved); Out x type T. x = (u/255 - Attr.Mean[c]) * Attr.InvStd[c], c = i%3.
	OpZero        // Out r...: all bytes 0.
	OpCast        // In src; Out dst: F16 to F32 (exact) or F32 to F16 (nearest even), element by element.
	OpAllReduce   // In r; Out r (F32). Collective: sum over ranks in rank order, then times 1/ranks if Attr.AllMean.
	OpFiniteCheck // In g (F32); Out scalars: word ScalarNonFinite = 1 if any element of g is Inf or NaN, else 0.
	OpUnscale     // In g, scalars; Out g (F32): g *= 1/scale.
	// OpControl: In table (F32 [MaxLearningRates]), scalars; Out scalars. The rule is [Scalars.Advance].
	OpControl
	OpUpdateStats // In stats (F32), running (F32); Out running = (1-m)*running + m*stats, m = Attr.Momentum.
	// OpSGD: In w, g, v, scalars; Out w, v (all F32, same length). If scalars' skip is set nothing is written. Else
	// d = g + Attr.Decay*w; v = Attr.Momentum*v + d; w -= lr*(Attr.Nesterov ? d + Momentum*v : v).
	OpSGD
	// OpLARS: as OpSGD on each of Attr.Spans (elements within the operands) with
	// d = ratio*(g + Decay*w), ratio = Trust*|w| / (|g| + Decay*|w|) if both norms are above 0, else 1.
	OpLARS
	OpEMA // In w, ema, scalars; Out ema = Decay*ema + (1-Decay)*w (Attr.Decay), nothing if skip.
	// OpBNInfer: In params (F32, gammas and betas), running (F32, means and variances); Out inf (F32, scales and biases).
	// For each Attr.Norms n and channel c: scale = gamma/sqrt(var+Eps); bias = beta - mean*scale.
	OpBNInfer
	// OpAccum: In step; Out metrics. For each slot s < Attr.Slots: metrics[s*MetricWords+MetricLoss] += loss*Count,
	// [+MetricHits] += hits, [+MetricCount] += Count (Attr.Count images).
	OpAccum
	OpChain // In a; Out b (F32): b = a*0.5 + 1. A link of the stand-alone chain.

	numOps
)

var opNames = [numOps]string{
	"none", "conv", "conv_bwd_data", "conv_bwd_filter", "batch_norm", "batch_norm_bwd", "relu", "relu_bwd", "add",
	"max_pool", "max_pool_bwd", "avg_pool", "avg_pool_bwd", "fc", "fc_bwd_data", "fc_bwd_filter", "loss", "loss_eval",
	"affine", "copy_labels", "inject", "copy_in", "normalize", "zero", "cast", "all_reduce", "finite_check", "unscale",
	"control", "update_stats", "sgd", "lars", "ema", "bn_infer", "accum", "chain",
}

func (o Op) String() string { return opNames[o] }

// Attr holds an operator's constants. Fields an operator does not name are 0.
type Attr struct {
	R, S, Stride, Pad int
	ReLU, Add         bool
	Mask, Sum         bool // batch norm alone
	Groups            int  // batch-norm groups, at least 1
	Unbiased          bool
	Eps               float32
	Smoothing         float32
	Mean, InvStd      [3]float32
	Momentum, Decay   float32
	Trust             float32
	Nesterov          bool
	AllMean           bool
	Count             float32
	Slot, Slots       int
	Spans             []Span
	Norms             []NormSpan
	Control           ControlRule
}

// MaskRun is how many channels of c share a byte of a batch norm's mask: those of
// 16 bytes of activations, which devices read at once, or one if they do not
// divide c.
func MaskRun(d DType, c int) int {
	if n := int(16 / d.Bytes()); c%n == 0 {
		return n
	}
	return 1
}

// Span is a tensor inside a range: element offset and count.
type Span struct{ Off, Len int }

// NormSpan places one batch norm's vectors inside OpBNInfer's operands, as
// element offsets; C is their length.
type NormSpan struct {
	Gamma, Beta int // in params
	Mean, Var   int // in running
	Scale, Bias int // in inf
	C           int
}

// Words of the step result (F32): the step's mean loss and hits, main and EMA.
const (
	StepLoss = iota
	StepHits
	StepLossEMA
	StepHitsEMA
	StepWords
)

// Words of the metrics (F32), one group of MetricWords for main, one for EMA.
const (
	MetricLoss = iota
	MetricHits
	MetricCount
	MetricWords
)

// FilterGradient says whether the operator computes the gradient of a weight,
// which nothing on the way back to the input waits for.
func (o Op) FilterGradient() bool { return o == OpConvBwdFilter || o == OpFCBwdFilter }

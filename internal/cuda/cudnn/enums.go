package cudnn

// The enumerations of the backend API, as far as this project uses them. Names
// are the header's without prefix. Source: cudnn_graph.h of cuDNN 9.

// DescriptorType is a cudnnBackendDescriptorType_t.
type DescriptorType int32

const (
	PointwiseDescriptor                DescriptorType = 0
	ConvolutionDescriptor              DescriptorType = 1
	EngineDescriptor                   DescriptorType = 2
	EngineCfgDescriptor                DescriptorType = 3
	EngineHeurDescriptor               DescriptorType = 4
	ExecutionPlanDescriptor            DescriptorType = 5
	KnobChoiceDescriptor               DescriptorType = 7
	OperationConvolutionForward        DescriptorType = 10
	OperationConvolutionBackwardFilter DescriptorType = 11
	OperationConvolutionBackwardData   DescriptorType = 12
	OperationPointwise                 DescriptorType = 13
	OperationGenStats                  DescriptorType = 14
	OperationGraphDescriptor           DescriptorType = 15
	VariantPackDescriptor              DescriptorType = 16
	TensorDescriptor                   DescriptorType = 17
	OperationBNBwdWeights              DescriptorType = 23
)

// Attribute is a cudnnBackendAttributeName_t.
type Attribute int32

const (
	PointwiseMode                Attribute = 0
	PointwiseMathPrec            Attribute = 1
	PointwiseNanPropagation      Attribute = 2
	PointwiseReLULowerClip       Attribute = 3
	PointwiseReLUUpperClip       Attribute = 4
	PointwiseReLULowerClipSlope  Attribute = 5
	ConvolutionCompType          Attribute = 100
	ConvolutionConvMode          Attribute = 101
	ConvolutionDilations         Attribute = 102
	ConvolutionFilterStrides     Attribute = 103
	ConvolutionPostPaddings      Attribute = 104
	ConvolutionPrePaddings       Attribute = 105
	ConvolutionSpatialDims       Attribute = 106
	EngineHeurMode               Attribute = 200
	EngineHeurOperationGraph     Attribute = 201
	EngineHeurResults            Attribute = 202
	EngineCfgEngine              Attribute = 300
	EngineCfgKnobChoices         Attribute = 302
	EngineCfgWorkspaceSize       Attribute = 303
	ExecutionPlanEngineConfig    Attribute = 401
	ExecutionPlanWorkspaceSize   Attribute = 402
	KnobChoiceKnobType           Attribute = 600
	KnobChoiceKnobValue          Attribute = 601
	ConvolutionForwardAlpha      Attribute = 700
	ConvolutionForwardBeta       Attribute = 701
	ConvolutionForwardConvDesc   Attribute = 702
	ConvolutionForwardW          Attribute = 703
	ConvolutionForwardX          Attribute = 704
	ConvolutionForwardY          Attribute = 705
	ConvolutionBwdDataAlpha      Attribute = 706
	ConvolutionBwdDataBeta       Attribute = 707
	ConvolutionBwdDataConvDesc   Attribute = 708
	ConvolutionBwdDataW          Attribute = 709
	ConvolutionBwdDataDX         Attribute = 710
	ConvolutionBwdDataDY         Attribute = 711
	ConvolutionBwdFilterAlpha    Attribute = 712
	ConvolutionBwdFilterBeta     Attribute = 713
	ConvolutionBwdFilterConvDesc Attribute = 714
	ConvolutionBwdFilterDW       Attribute = 715
	ConvolutionBwdFilterX        Attribute = 716
	ConvolutionBwdFilterDY       Attribute = 717
	OperationPointwisePWDesc     Attribute = 750
	OperationPointwiseXDesc      Attribute = 751
	OperationPointwiseBDesc      Attribute = 752
	OperationPointwiseYDesc      Attribute = 753
	OperationPointwiseAlpha1     Attribute = 754
	OperationPointwiseAlpha2     Attribute = 755
	OperationPointwiseDXDesc     Attribute = 756
	OperationPointwiseDYDesc     Attribute = 757
	GenStatsMode                 Attribute = 770
	GenStatsMathPrec             Attribute = 771
	GenStatsXDesc                Attribute = 772
	GenStatsSumDesc              Attribute = 773
	GenStatsSqSumDesc            Attribute = 774
	OperationGraphHandle         Attribute = 800
	OperationGraphOps            Attribute = 801
	TensorByteAlignment          Attribute = 900
	TensorDataType               Attribute = 901
	TensorDimensions             Attribute = 902
	TensorStrides                Attribute = 903
	TensorUniqueID               Attribute = 906
	TensorIsVirtual              Attribute = 907
	VariantPackUniqueIDs         Attribute = 1000
	VariantPackDataPointers      Attribute = 1001
	VariantPackWorkspace         Attribute = 1003
	EngineOperationGraph         Attribute = 1300
	EngineGlobalIndex            Attribute = 1301
	EngineNumericalNote          Attribute = 1303
	EngineBehaviorNote           Attribute = 1305
	BNBwdWeightsMathPrec         Attribute = 1620
	BNBwdWeightsMeanDesc         Attribute = 1621
	BNBwdWeightsInvStdDesc       Attribute = 1622
	BNBwdWeightsBNScaleDesc      Attribute = 1623
	BNBwdWeightsXDesc            Attribute = 1624
	BNBwdWeightsDYDesc           Attribute = 1625
	BNBwdWeightsDBNScaleDesc     Attribute = 1626
	BNBwdWeightsDBNBiasDesc      Attribute = 1627
	BNBwdWeightsEqDYScaleDesc    Attribute = 1628
	BNBwdWeightsEqXScaleDesc     Attribute = 1629
	BNBwdWeightsEqBias           Attribute = 1630
)

// AttributeType is a cudnnBackendAttributeType_t: how an attribute's elements
// are stored.
type AttributeType int32

const (
	TypeHandle        AttributeType = 0
	TypeDataType      AttributeType = 1
	TypeBoolean       AttributeType = 2
	TypeInt64         AttributeType = 3
	TypeFloat         AttributeType = 4
	TypeDouble        AttributeType = 5
	TypeVoidPtr       AttributeType = 6
	TypeConvMode      AttributeType = 7
	TypeHeurMode      AttributeType = 8
	TypeKnobType      AttributeType = 9
	TypeNanProp       AttributeType = 10
	TypeNumericalNote AttributeType = 11
	TypePointwiseMode AttributeType = 14
	TypeDescriptor    AttributeType = 15
	TypeGenStatsMode  AttributeType = 16
	TypeBehaviorNote  AttributeType = 19
)

// DataType is a cudnnDataType_t.
type DataType int32

const (
	Float DataType = 0
	Half  DataType = 2
)

// ConvMode is a cudnnConvolutionMode_t.
type ConvMode int32

// CrossCorrelation is the convolution of neural networks: filters unflipped.
const CrossCorrelation ConvMode = 1

// HeurMode is a cudnnBackendHeurMode_t.
type HeurMode int32

const (
	HeurModeB        HeurMode = 1
	HeurModeFallback HeurMode = 2
	HeurModeA        HeurMode = 3
)

// NumericalNote is a cudnnBackendNumericalNote_t: what an engine does to
// numbers.
type NumericalNote int32

const (
	NoteTensorCore                NumericalNote = 0
	NoteDownConvertInputs         NumericalNote = 1
	NoteReducedPrecisionReduction NumericalNote = 2
	NoteFFT                       NumericalNote = 3
	NoteNondeterministic          NumericalNote = 4
	NoteWinograd                  NumericalNote = 5
	NoteWinogradTile4x4           NumericalNote = 6
	NoteWinogradTile6x6           NumericalNote = 7
	NoteWinogradTile13x13         NumericalNote = 8
	NoteStrictNanProp             NumericalNote = 9
)

var numericalNotes = []string{
	"tensor_core", "down_convert_inputs", "reduced_precision_reduction", "fft", "nondeterministic", "winograd",
	"winograd_tile_4x4", "winograd_tile_6x6", "winograd_tile_13x13", "strict_nan_prop",
}

func (n NumericalNote) String() string { return name(numericalNotes, int(n), "numerical_note_") }

// BehaviorNote is a cudnnBackendBehaviorNote_t.
type BehaviorNote int32

const (
	NoteRuntimeCompilation BehaviorNote = 0
	NoteFilterReorder      BehaviorNote = 1
	NoteBiasReorder        BehaviorNote = 2
	NoteCUDAGraphNative    BehaviorNote = 3
	NoteCUBLASLt           BehaviorNote = 4
)

var behaviorNotes = []string{
	"runtime_compilation", "filter_int8x32_reorder", "bias_int8x32_reorder", "cuda_graph_native", "cublaslt",
}

func (n BehaviorNote) String() string { return name(behaviorNotes, int(n), "behavior_note_") }

// PointwiseKind is a cudnnPointwiseMode_t.
type PointwiseKind int32

const (
	PointwiseAdd     PointwiseKind = 0
	PointwiseMul     PointwiseKind = 1
	PointwiseSub     PointwiseKind = 9
	PointwiseReLUFwd PointwiseKind = 100
	PointwiseReLUBwd PointwiseKind = 200
)

// NanPropagation is a cudnnNanPropagation_t.
type NanPropagation int32

// PropagateNan lets a NaN pass a ReLU.
const PropagateNan NanPropagation = 1

// GenStatsKind is a cudnnGenStatsMode_t.
type GenStatsKind int32

// GenStatsSumSqSum asks for the sum and the sum of squares of each channel.
const GenStatsSumSqSum GenStatsKind = 0

package fake

// code is a CUresult.
type code = uint32

const (
	success            code   = 0
	invalidValue       code   = 1
	outOfMemory        code   = 2
	notInitialized     code   = 3
	noDevice           code   = 100
	invalidDevice      code   = 101
	invalidContext     code   = 201
	invalidPTX         code   = 218
	invalidHandle      code   = 400
	illegalState       code   = 401
	notFound           code   = 500
	notReady           code   = 600
	illegalAddress     code   = 700
	misalignedAddress  code   = 716
	launchFailed       code   = 719
	captureUnsupported code   = 900
	captureInvalidated code   = 901
	captureMerge       code   = 902
	captureUnmatched   code   = 903
	captureUnjoined    code   = 904
	captureIsolation   code   = 905
	captureImplicit    code   = 906
	capturedEvent      code   = 907
	captureWrongThread code   = 908
	lossyQuery         code   = 402
	graphUpdateFailure code   = 910
	modeGlobal                = 0
	modeThreadLocal           = 1
	modeRelaxed               = 2
	streamNonBlocking         = 1
	eventDisableTiming        = 2
	external                  = 1 // of an event's record and wait
	typeKernel                = 0
	typeMemcpy                = 1
	typeMemset                = 2
	typeEmpty                 = 5
	typeWaitEvent             = 6
	typeEventRecord           = 7
	updateTopology            = 2
	updateNodeType            = 3
	updateParameters          = 5
	updateFunction            = 7
	memoryHost                = 1
	memoryDevice              = 2
	attrMaxDynamic            = 8 // CUfunction_attribute
	attrProgrammatic          = 6 // CUlaunchAttributeID
	staticSharedLimit  uint32 = 48 << 10
)

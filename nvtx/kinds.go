package nvtx

// Domain is the domain of the project's ranges.
const Domain = "trbench"

// Kind is what a range of this project stands for. It is here, in one place,
// so that ranges have the same names and looks in every mode. Pushed by the
// threads of ranks, and nested: steps, in them sub-graphs or the whole segment,
// in these nodes; and, while preparing, what is captured. The others are spans
// of the process.
type Kind uint8

const (
	Run           Kind = iota // one process of a run
	Cell                      // all configurations of a cell
	Phase                     // what is done with them: build, prepare, verify, warm up, blocks
	Configuration             // one of them
	Epoch                     // from the begin of an epoch, or a validation, to its end
	Step                      // the submission of a segment of the schedule
	SubGraph                  // the submission of a sub-graph, or of a segment as one graph
	Node                      // the submission of one operator
	Capture                   // a phase of capturing, and each graph in it
)

// Names of ranges that tools and documents rely on.
const (
	RunName     = "run"
	EpochName   = "epoch"
	ValName     = "validation"
	StepName    = "step"    // of training or validation
	ProfileName = "profile" // the steps that trbench profile shows a tool
)

// Look is the category and colour of a kind.
func (k Kind) Look() Look {
	return [...]Look{
		Run:           {"run", 0xff455a64},
		Cell:          {"cell", 0xff607d8b},
		Phase:         {"phase", 0xff90a4ae},
		Configuration: {"configuration", 0xff8d6e63},
		Epoch:         {"epoch", 0xff5e35b1},
		Step:          {"step", 0xff76b900},
		SubGraph:      {"sub-graph", 0xff1e88e5},
		Node:          {"node", 0xff26a69a},
		Capture:       {"capture", 0xfffb8c00},
	}[k]
}

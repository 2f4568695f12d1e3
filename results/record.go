package results

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// The schema this package writes.
const (
	SchemaName  = "trbench.record"
	SchemaMajor = 1
	SchemaMinor = 4
)

// Schema names a format and its version.
type Schema struct {
	Name  string `json:"name"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
}

// Record is one invocation of the program: its cells, and what is the same
// for all of them.
type Record struct {
	Schema  Schema    `json:"schema"`
	Created time.Time `json:"created"`
	// Arguments are the command line's words after the program's name.
	Arguments []string `json:"arguments"`
	Seed      uint64   `json:"seed"`
	Quick     bool     `json:"quick"`
	Program   Program  `json:"program"`
	Host      Host     `json:"host"`
	Device    Device   `json:"device"`
	// Status says whether all that the plan asks for was run. A record that is
	// not complete can be resumed.
	Status string `json:"status"`
	// Plan is what the run set out to do; null in records before 1.1.
	Plan *Plan `json:"plan"`
	// PlanDigest is [Plan.Digest], by which a plan that somebody changed is found
	// when the run is gone on with; empty in records before 1.3.
	PlanDigest string `json:"plan_digest"`
	// Environment is the machine and the software as the run found them.
	Environment Environment `json:"environment"`
	// Warnings are about the run as a whole; a cell has its own.
	Warnings []Warning `json:"warnings"`
	Cells    []Cell    `json:"cells"`

	// Extra holds fields this version does not know.
	Extra Extra `json:"-"`
}

// Program identifies the build that made a record.
type Program struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // empty if unknown
	// RevisionFrom says whence Revision is known: build, or checkout, which go
	// run and the like leave as the only trace: what was built may differ from
	// it. Empty in records before 1.1, where it is the build's.
	RevisionFrom string `json:"revision_from"`
	// Dirty says that files differed from the revision; null is unknown.
	Dirty *bool  `json:"dirty"`
	Go    string `json:"go"`
	// Executable is the SHA-256 of the program's file, in hex, by which the very
	// program is known; empty if it could not be read, and in records before 1.4.
	Executable string `json:"executable"`
}

// Where a revision is known from.
const (
	FromBuild    = "build"
	FromCheckout = "checkout"
)

// Equal says whether both are the same build, as far as is known: builds with
// local changes differ in their files alone.
func (p Program) Equal(o Program) bool {
	dirty := func(d *bool) string {
		if d == nil {
			return "unknown"
		}
		return strconv.FormatBool(*d)
	}
	if p.Executable != "" && o.Executable != "" && p.Executable != o.Executable {
		return false
	}
	return p.Version == o.Version && p.Revision == o.Revision && p.RevisionFrom == o.RevisionFrom && dirty(p.Dirty) == dirty(o.Dirty) && p.Go == o.Go
}

// Host is the machine around the device.
type Host struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
}

// Device is what the cells ran on.
type Device struct {
	Name        string `json:"name"` // the word after --device
	Description string `json:"description"`
}

// CellKey is one thing to train. It is comparable.
type CellKey struct {
	Workload   string     `json:"workload"`
	Batch      int        `json:"batch"` // images a rank and step
	GPUs       int        `json:"gpus"`  // data-parallel ranks
	Precision  string     `json:"precision"`
	Optimizer  string     `json:"optimizer"` // sgd, nesterov, lars
	EMA        bool       `json:"ema"`
	Smoothing  float64    `json:"smoothing"`
	Frozen     bool       `json:"frozen"`
	Resolution Resolution `json:"resolution"`
	LastBatch  LastBatch  `json:"last_batch"`
	Variant    int        `json:"variant"` // the variant timed, 0..5
	Device     string     `json:"device"`  // cpu, cuda
	Kernels    string     `json:"kernels"` // whose operators run; "reference" on the CPU
}

// Name is the short name used in messages: "resnet50 batch 64 gpus 1".
func (k CellKey) Name() string {
	return fmt.Sprintf("%s batch %d gpus %d", k.Workload, k.Batch, k.GPUs)
}

// Resolution holds image sides in pixels; 0 means the model's own.
type Resolution struct {
	Begin int `json:"begin"`
	Final int `json:"final"`
}

// LastBatch holds the images a rank sees in the last step of a training epoch
// and of a validation; 0 means a full batch.
type LastBatch struct {
	Train int `json:"train"`
	Val   int `json:"val"`
}

// DefaultCellKey is what absent key fields mean.
func DefaultCellKey() CellKey {
	return CellKey{
		GPUs: 1, Precision: "fp32", Optimizer: "sgd", Variant: 2, Device: "cpu", Kernels: "reference",
	}
}

// ConfigurationKey is one way to run a cell. It is comparable.
type ConfigurationKey struct {
	Mode     string `json:"mode"`     // eager, graph, step
	Sync     string `json:"sync"`     // event, host; inside for mode step
	Control  string `json:"control"`  // device, host
	Launcher string `json:"launcher"` // purego, gorgonia; go on the CPU
	Ranks    string `json:"ranks"`    // threads, processes
	// DispatchNs is host time burnt before each eager submission.
	DispatchNs int64 `json:"dispatch_ns"`
}

// DefaultConfigurationKey is what absent key fields mean.
func DefaultConfigurationKey() ConfigurationKey {
	return ConfigurationKey{Mode: "eager", Sync: "event", Control: "device", Launcher: "purego", Ranks: "threads"}
}

// String is the short name used in tables and messages: "eager/event/device",
// and "eager/event/device/gorgonia" for a launcher beside the project's own.
func (k ConfigurationKey) String() string {
	s := k.Mode + "/" + k.Sync + "/" + k.Control
	if k.SecondLauncher() {
		s += "/" + k.Launcher
	}
	return s
}

// SecondLauncher says whether another library than the project's own binding
// makes the launching calls.
func (k ConfigurationKey) SecondLauncher() bool {
	return k.Launcher != "" && k.Launcher != "purego" && k.Launcher != "go"
}

// Cell is one thing trained, with its configurations inside.
type Cell struct {
	Key CellKey `json:"key"`
	// Steps and Blocks are the timed steps of a block and the blocks of each
	// configuration in a process, as planned. Warmup is the number of untimed
	// steps before all blocks that was asked for, 0 for as many as it takes:
	// each configuration says how many that was.
	Steps  int `json:"steps"`
	Warmup int `json:"warmup"`
	Blocks int `json:"blocks"`
	// Variants were prepared, the timed one (key.variant) among them. How many
	// were is no part of the key: a step runs the same operators, and what
	// --variants=all changes is preparation, memory and the atlas.
	Variants       []int           `json:"variants"`
	Verify         Verify          `json:"verify"`
	Memory         Memory          `json:"memory"`
	Atlas          Atlas           `json:"atlas"`
	ExecutionTable ExecutionTable  `json:"execution_table"`
	Warnings       []Warning       `json:"warnings"`
	Configurations []Configuration `json:"configurations"`
	// Status is done or failed; a failed cell has a failure and keeps what its
	// finished processes measured.
	Status    string    `json:"status"`
	Failure   string    `json:"failure"`
	Processes []Process `json:"processes"`
	Headline  Headline  `json:"headline"`
	Ratios    []Ratio   `json:"ratios"`
	// Plans are the library plans that ran, in the device's own form; a plan
	// that differs is an exact difference between two records.
	Plans []json.RawMessage `json:"plans"`

	Extra Extra `json:"-"`
}

// Verify is the evidence that all modes left the same bits behind.
type Verify struct {
	Equal   bool  `json:"equal"`
	Tensors int   `json:"tensors"` // of one rank
	Bytes   int64 `json:"bytes"`   // of these tensors, over all ranks
	// Steps are the training steps of each resolution that the check ran.
	Steps int `json:"steps"`
	// Modes are the configurations in the order they ran, the one that others
	// are compared with first. One that is there twice, alone, was compared
	// with itself.
	Modes []string `json:"modes"`
}

// Memory is what one rank occupies.
type Memory struct {
	ArenaBytes  int64 `json:"arena_bytes"`  // of device memory, of one rank
	PinnedBytes int64 `json:"pinned_bytes"` // of host memory, of one rank
}

// Atlas counts slots of one rank, in the prepared variants: Captured + Reused =
// Filled.
type Atlas struct {
	Filled   int `json:"filled"`
	Captured int `json:"captured"`
	Reused   int `json:"reused"`
}

// ExecutionTable is the dense table of (rank, variant, sub-graph) handles, over
// all ranks.
type ExecutionTable struct {
	Entries int   `json:"entries"` // over all ranks
	Bytes   int64 `json:"bytes"`   // over all ranks
}

// Warning is doubt that travels with the figures: every renderer prints it.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
	// Processes is how many processes of the cell said so; 0 for a doubt that
	// follows from the record as a whole.
	Processes int `json:"processes,omitempty"`
}

// Configuration is one way the cell was run.
type Configuration struct {
	Key     ConfigurationKey `json:"key"`
	Metrics []Metric         `json:"metrics"`
	// Prepare has the phases in the order they ran. What configurations share
	// stands in each of them: prepare_operators, which is the session's, and
	// the graphs of configurations that differ in joins alone. So phases add up
	// to what a configuration would take alone, and not across configurations.
	Prepare  []Phase  `json:"prepare"`
	Captures Captures `json:"captures"`
	Counts   Counts   `json:"counts"`
	Warmup   []Warmup `json:"warmup"` // one a process
	// Absent names metrics that could not be had, and why.
	Absent []Absence `json:"absent"`
	// Machine is what was read of the GPU right after each block, outside of what
	// is timed; empty where nothing was, as before 1.2.
	Machine []Spread `json:"machine"`
	// Trace is the traced pass; null if there was none, as before 1.2.
	Trace *Trace `json:"trace"`

	Extra Extra `json:"-"`
}

// Metric returns the named metric, or nil.
func (c *Configuration) Metric(name string) *Metric {
	for i := range c.Metrics {
		if c.Metrics[i].Name == name {
			return &c.Metrics[i]
		}
	}
	return nil
}

// Absence is a metric that a configuration has no figure for.
type Absence struct {
	Metric string `json:"metric"`
	Why    string `json:"why"`
}

// Phase is a named part of preparing the graphs, in host time until all ranks
// were done with it. Its warm_up runs each operator once before it is captured;
// it has nothing to do with the warm-up of a configuration.
type Phase struct {
	Phase string `json:"phase"`
	// Ns is the median over processes, Processes what each took, in process
	// order.
	Ns        int64   `json:"ns"`
	Processes []int64 `json:"processes,omitempty"`
	// Memory is the device memory in use around the phase, in each process whose
	// device says so: none on a CPU, and in records before 1.4.
	Memory []PhaseMemory `json:"memory,omitempty"`
}

// PhaseMemory is how many bytes of the device of rank 0 were in use right before
// and right after a phase in one process, by whoever used them: the arena, the
// graphs, the driver, and other programs.
type PhaseMemory struct {
	Process     int   `json:"process"`
	BeforeBytes int64 `json:"before_bytes"`
	AfterBytes  int64 `json:"after_bytes"`
}

// Captures counts what a configuration made, over all ranks and all finished
// processes.
type Captures struct {
	// Captures are graphs recorded. Configurations that differ in joins alone
	// share them, and each counts them.
	Captures int64 `json:"captures"`
	// Replays are launches of graphs: the first one of each, the check's, the
	// warm-up's and all that was timed.
	Replays    int64 `json:"replays"`
	Recaptures int64 `json:"recaptures"`
}

// Counts are of one rank (rank 0) and one step: of all that a timed step
// submits, which on an epoch's last batch is the begin of the next epoch as
// well. nil is unknown, never a guess.
type Counts struct {
	Launches   Launches         `json:"launches"`
	GraphNodes map[string]int64 `json:"graph_nodes"` // by kind, in the graphs that a step replays
	// Kernels are the kernel nodes among them; of an eager configuration those
	// of a captured one with the same control.
	Kernels *int64 `json:"kernels"`
	// Graphs are those that a step of a captured configuration launches, in that
	// order, and graph_nodes the sum of their nodes; none of an eager
	// configuration, and in records before 1.4.
	Graphs []CapturedGraph `json:"graphs,omitempty"`
}

// CapturedGraph is a sealed graph of one rank, as the device tells it.
type CapturedGraph struct {
	// Name is that of its sub-graph, or of the step, with the variant it was
	// captured in.
	Name  string           `json:"name"`
	Nodes map[string]int64 `json:"nodes"` // by kind
	Edges int              `json:"edges"`
	// WidestSection is the most nodes of which no path orders any two: so many may
	// run at once.
	WidestSection int `json:"widest_section"`
	// CriticalPath is the number of nodes of the longest chain.
	CriticalPath int `json:"critical_path"`
}

// Total is the number of nodes of all kinds.
func (g CapturedGraph) Total() int64 {
	n := int64(0)
	for _, k := range g.Nodes {
		n += k
	}
	return n
}

// Launches counts submissions of a step, on one rank.
type Launches struct {
	Host  *int64 `json:"host"`  // submitting calls, those of graphs included
	Graph *int64 `json:"graph"` // of these, launches of graphs
	Copy  *int64 `json:"copy"`  // transfers submitted, inside graphs or alone
	Sync  *int64 `json:"sync"`  // joins that blocked the host: host joins and host control's; events are none
}

// Sample is one observation. Samples stay in the order they were taken.
type Sample struct {
	Process int `json:"process"`
	// Rank is 0 where a figure is of the job as a whole.
	Rank     int     `json:"rank"`
	Block    int     `json:"block"`
	Position int     `json:"position"` // of the configuration within the block's order
	Value    float64 `json:"value"`
}

package results

// Interval is the uncertainty of an estimate.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Level is the coverage asked for, Coverage what the method reaches at
	// this number of replicates: an order-statistic interval has 0.75 at 3
	// processes, whatever was asked. 0 is unknown.
	Level    float64 `json:"level"`
	Coverage float64 `json:"coverage"`
	Method   string  `json:"method"` // order, t, bootstrap
}

// Summary is what a metric's samples say. It is stored, so that no reader
// recomputes it.
type Summary struct {
	// Median is over processes, of each process's median over its samples.
	Median   float64   `json:"median"`
	Interval *Interval `json:"interval"` // of Median, over processes; null with one process
	// Processes holds the process medians in process order.
	Processes []float64 `json:"processes"`
	// P10 to Max are of all samples, over all processes.
	P10 float64 `json:"p10"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int     `json:"n"`
}

// Ratio compares two configurations of a cell in one metric: base over other,
// so for a time, above 1 means that other is faster. Its logarithm is the mean
// over processes of one log ratio a process, which is the median over that
// process's paired blocks.
type Ratio struct {
	Metric string           `json:"metric"`
	Base   ConfigurationKey `json:"base"`
	Other  ConfigurationKey `json:"other"`
	Value  float64          `json:"value"`
	// Interval is a t interval over processes, null with one. Bootstrap
	// stands beside it from 8 processes.
	Interval  *Interval `json:"interval"`
	Bootstrap *Interval `json:"bootstrap"`
	// Logs holds each process's log ratio, in process order.
	Logs []float64 `json:"logs"`
}

// Split divides the speed-up of mode step or graph over eager with host joins
// into fewer joins and fewer launches: the mean over both orders of the log
// ratios of the four corners, so that Joins times Launches is Total. The
// interaction is by how much more fewer joins gain when captured than when
// eager.
type Split struct {
	Total       Ratio `json:"total"`
	Joins       Ratio `json:"joins"`
	Launches    Ratio `json:"launches"`
	Interaction Ratio `json:"interaction"`
}

// Headline is the cell's figure: eager with event joins against the best
// captured configuration, which is picked after the fact, as the one of the
// least step time: where several are alike, its interval lies above the truth
// a little more often than below. Ratios has each by itself.
type Headline struct {
	Ratio *Ratio `json:"ratio"`
	// Withheld says why there is no figure.
	Withheld string `json:"withheld"`
	Split    *Split `json:"split"`
	// SplitWithheld says which corner is missing.
	SplitWithheld string `json:"split_withheld"`
}

// Statuses of a cell and of a process.
const (
	Done   = "done"
	Failed = "failed"
)

// Process is a replicate: one worker process that ran the cell in all its
// configurations.
type Process struct {
	Index  int    `json:"index"`
	Seed   uint64 `json:"seed"` // of its block order
	Status string `json:"status"`
	// Failure ends with the end of the worker's stderr.
	Failure string `json:"failure"`
	Ns      int64  `json:"ns"` // wall time
	// Phases are where Ns went, by the host's clock, in the order of their first
	// begin; empty in records before 1.3 and of a process that failed.
	Phases []ProcessPhase `json:"phases,omitempty"`
	PID    int            `json:"pid"`
	// Blocks is how many blocks of each configuration it timed.
	Blocks int `json:"blocks"`
	// Load1 is the machine's load average when it began.
	Load1 *float64 `json:"load1"`
	// Readings are the machine under load: while more steps of the last
	// configuration ran, after all that was timed.
	Readings []Reading `json:"readings,omitempty"`
}

// ProcessPhase is a part of a replicate's wall time. What comes in turns, such as
// the blocks of all configurations, is added up. Start and end are the parent's
// measure of the process, the phases between are the process's own.
type ProcessPhase struct {
	Phase string `json:"phase"`
	Ns    int64  `json:"ns"`
}

// Phases of a replicate's process. A reader may meet others.
const (
	PhaseStart            = "start"             // from the decision to start it to its first word
	PhaseOpenDevice       = "open_device"       // libraries, driver, arenas
	PhaseTuning           = "tuning"            // timing of ways to run the operators, in a cell's first process
	PhaseBuild            = "build"             // the workload; in a cell's first process library plans are chosen
	PhasePrepareOperators = "prepare_operators" // weights, every operator, the first snapshot
	PhaseVerify           = "verify"            // the check of bits, which captures the graphs
	PhaseWarmUp           = "warm_up"           // of configurations, not of operators
	PhaseRestore          = "restore"           // before each block: collect garbage, restore the snapshot; readings after it
	PhaseBlocks           = "blocks"            // timed steps, back to back
	PhaseSingleSteps      = "single_steps"      // timed steps, one by one
	PhaseLaunchOverhead   = "launch_overhead"
	PhaseUnderLoad        = "under_load" // the machine is read while steps run
	PhaseTrace            = "trace"
	PhaseClose            = "close" // graphs and device are released
	PhaseEnd              = "end"   // from its last word to the end of the process
)

// Warmup is how a configuration was warmed up in one process.
type Warmup struct {
	Process int `json:"process"`
	Steps   int `json:"steps"`
	// Capped says that the last steps still showed a trend when the cap was
	// reached.
	Capped bool `json:"capped"`
}

package results

// Statuses of a record.
const (
	Complete   = "complete"
	Incomplete = "incomplete" // interrupted, or still running
)

// Plan is what a run set out to do: enough to go on after an interruption.
type Plan struct {
	Cells          []CellKey          `json:"cells"`
	Configurations []ConfigurationKey `json:"configurations"`
	// Processes are the replicates of each cell.
	Processes int `json:"processes"`
	// Steps are those of a block; Single the steps timed one by one after it;
	// Blocks the blocks of each configuration in a process.
	Steps  int `json:"steps"`
	Single int `json:"single"`
	Blocks int `json:"blocks"`
	// Warmup is a fixed number of untimed steps; null for as many as it takes,
	// at most WarmupCap.
	Warmup    *int   `json:"warmup"`
	WarmupCap int    `json:"warmup_cap"`
	Seed      uint64 `json:"seed"`
	// Data is what --data said.
	Data       string `json:"data"`
	PrepareAll bool   `json:"prepare_all"`
	Quick      bool   `json:"quick"`
	// BudgetNs is how long the whole run may take before blocks are left out;
	// 0 for as long as it takes.
	BudgetNs int64 `json:"budget_ns"`
	// TraceSteps are the steps of each configuration that are recorded after all
	// that is timed; 0 for no traced pass, as before 1.2.
	TraceSteps int `json:"trace_steps"`
	// Tune says how a device runs the operators of a cell where it has a choice:
	// auto (timed once a cell), rule (its rule of thumb), or a way's words; empty
	// where there is none.
	Tune string `json:"tune"`
	// Inject is a slowdown put in on purpose; absent for none.
	Inject *Injection `json:"inject,omitempty"`
}

// Injection is a slowdown put into a run on purpose, to see that a guard finds
// it: host time burnt before a sub-graph is submitted, which counts as
// submitting.
type Injection struct {
	SubGraph string `json:"sub_graph"`
	Ns       int64  `json:"ns"` // each time, on the host's clock
}

// withLists makes lists appear as [] rather than null.
func (p *Plan) withLists() *Plan {
	if p == nil {
		return nil
	}
	q := *p
	q.Cells, q.Configurations = notNil(p.Cells), notNil(p.Configurations)
	return &q
}

package results

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
)

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

// Digest is the SHA-256 of the plan's canonical JSON: no spaces, members in the
// order of their names, those with their zero value left out. So a field that a
// later minor version adds changes nothing for plans that do not use it.
func (p *Plan) Digest() (string, error) {
	b, err := json.Marshal(canonical(reflect.ValueOf(p)))
	if err != nil {
		return "", fmt.Errorf("digest of the plan: %w", err)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// canonical is a value as maps and lists, which encoding/json writes in one way
// only. A pointer to 0 is kept: null and 0 are not the same.
func canonical(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return canonical(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = canonical(v.Index(i))
		}
		return list
	case reflect.Struct:
		members := map[string]any{}
		for i := range v.NumField() {
			f := v.Field(i)
			if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
				continue
			}
			members[fieldName(v.Type().Field(i))] = canonical(f)
		}
		return members
	}
	return v.Interface()
}

// CheckDigest says why the plan cannot be the one that the run wrote; nil if it
// can. Records before 1.3 have no digest, and nothing is known of theirs. The
// error continues a sentence about the record.
func (r *Record) CheckDigest() error {
	if r.PlanDigest == "" && r.Schema.Minor < digestSince {
		return nil
	}
	now, err := r.Plan.Digest()
	switch {
	case err != nil:
		return err
	case r.PlanDigest == "":
		return fmt.Errorf("has no digest of its plan, which every record of schema %d.%d has: it was changed since the run wrote it", r.Schema.Major, r.Schema.Minor)
	case now != r.PlanDigest:
		return fmt.Errorf("has a plan that was changed since the run wrote it (its digest is %s, not %s)", short(now), short(r.PlanDigest))
	}
	return nil
}

// digestSince is the minor version whose records have a digest.
const digestSince = 3

// short is as much of a digest as a person compares.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

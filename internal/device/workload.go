package device

import (
	"encoding/json"
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// Chooser is a device that picks library plans for a spec's nodes. It does so
// before the workload is built, whose scratch memory the plans decide.
type Chooser interface {
	Choose(spec workloads.Spec) error
	// Plans lists what was chosen, SetPlans takes what another process chose:
	// a plan chosen anew in every process would be noise between processes.
	Plans() ([]json.RawMessage, error)
	SetPlans(plans []json.RawMessage) error
}

// NewWorkload builds a spec for a device: plans first, where it has any to
// choose, then [workloads.NewEdited]; edit is nil outside tests.
func NewWorkload(d Device, s workloads.Spec, edit workloads.Edit) (*workloads.Workload, error) {
	if c, ok := d.(Chooser); ok {
		if err := c.Choose(s); err != nil {
			return nil, fmt.Errorf("choose plans on device %s: %w", d.Name(), err)
		}
	}
	return workloads.NewEdited(s, d.Target(), edit)
}

package device

import (
	"encoding/json"
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

// Launchers is a group whose operators can be submitted by more than one
// library. Joins, replays and what is submitted into a capture stay with the
// first.
type Launchers interface {
	// Launchers lists them by the words after --launcher, the one in use at
	// first at the beginning.
	Launchers() []string
	// UseLauncher chooses who submits operators from now on. It must not be
	// called on a rank's thread, nor while ranks submit.
	UseLauncher(name string) error
}

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

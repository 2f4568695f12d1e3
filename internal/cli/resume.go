package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// resumed is the session that goes on with the record of --resume, into the
// same file. All but the way of printing is the record's, the files of libraries
// that its command named as well, unless flags name others; --processes may ask
// for more than it planned.
func (o *runOptions) resumed(cmd *cobra.Command) (_ *runSession, err error) {
	if o.resume == "" {
		return nil, &bench.InputError{Name: "--resume", Reason: "is empty; it takes the record of a run that did not end"}
	}
	var extra []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "resume" && f.Name != "processes" && f.Name != "json" && f.Name != "progress" && !isLibraryFlag(f.Name) {
			extra = append(extra, "--"+f.Name)
		}
	})
	if len(extra) > 0 {
		return nil, &bench.InputError{Name: "--resume", Reason: "takes the plan from the record; drop " + strings.Join(extra, ", ")}
	}
	refuse := func(format string, args ...any) (*runSession, error) {
		return nil, &bench.InputError{Name: "--resume " + o.resume, Reason: fmt.Sprintf(format, args...)}
	}
	file := o.env.path(o.resume)
	// Before it is read: what another run adds meanwhile would be lost.
	lock, err := lockFile(file)
	if err != nil {
		return refuse("%v; wait for its end", err)
	}
	defer func() {
		if err != nil {
			lock.release()
		}
	}()
	r, err := results.ReadFile(file)
	if err != nil {
		return nil, err
	}
	more := cmd.Flags().Changed("processes")
	switch {
	case r.Plan == nil:
		return refuse("names a record without a plan, from a version that could not resume")
	case r.Schema.Minor > results.SchemaMinor:
		return refuse("was written by a newer version (schema %d.%d), whose plan may mean more than this one knows", r.Schema.Major, r.Schema.Minor)
	case more && o.processes.first() < r.Plan.Processes:
		return refuse("was planned with --processes=%d; it can be gone on with for more, not for %d", r.Plan.Processes, o.processes.first())
	case r.Status == results.Complete && !anyFailed(r) && (!more || o.processes.first() == r.Plan.Processes):
		return refuse("is complete: nothing is left to run; --processes=N with more than %d adds to it", r.Plan.Processes)
	}
	plan := bench.Plan(*r.Plan)
	if more {
		plan.Processes = o.processes.first()
	}
	var kernels []string
	for _, c := range plan.Cells {
		kernels = append(kernels, c.Kernels)
	}
	slices.Sort(kernels)
	libraries := o.libraries
	if r.Device.Name != "cpu" { // which opens none, whatever --device=auto was given
		libraries = libraries.over(librariesIn(r.Arguments))
	}
	if err := o.env.useLibraries(libraries, r.Device.Name, slices.Compact(kernels)); err != nil {
		return nil, err
	}
	known := func(d Device) bool { return d.Name == r.Device.Name }
	if !slices.ContainsFunc(o.env.Engine.Devices(r.Device.Name), known) {
		return refuse("was run on device %q, which this program does not know", r.Device.Name)
	}
	device, err := o.env.chooseDevice(r.Device.Name)
	if err != nil {
		return nil, err
	}
	if why := o.env.changed(cmd, r, device); why != "" {
		return refuse("was begun elsewhere: %s; processes of both would not be replicates of one thing", why)
	}
	if plan.Processes < 1 || plan.Blocks < 1 {
		return refuse("has a plan with nothing to run")
	}
	if err := o.env.checkPlan(plan, device); err != nil {
		return refuse("has a plan that cannot be run here: %v", err)
	}
	if err := checkKernels(plan, device); err != nil {
		return refuse("has a plan that cannot be run here: %v", err)
	}
	if err := plan.CheckHeld(r); err != nil {
		return refuse("%v; take the record as the run left it, or begin a new one", err)
	}
	if err := results.CheckWritable(file); err != nil {
		return nil, outProblem("--resume "+o.resume, err)
	}
	r.Schema.Minor = results.SchemaMinor // what is written from here on has all of it
	s := &runSession{env: o.env, plan: plan, record: r, target: file, file: file, resumed: true, stored: finished(r), json: o.json, progress: o.progress, lock: lock}
	return s, s.readyTrace(device, keptTimelines(r, file))
}

// checkKernels refuses cells with operators that the device does not have.
func checkKernels(plan bench.Plan, device Device) error {
	for _, c := range plan.Cells {
		if !slices.Contains(device.Kernels, c.Kernels) {
			return fmt.Errorf("kernels %q are none of device %s, which has: %s", c.Kernels, device.Name, strings.Join(device.Kernels, ", "))
		}
	}
	return nil
}

func anyFailed(r *results.Record) bool {
	return slices.ContainsFunc(r.Cells, func(c results.Cell) bool { return c.Status == results.Failed })
}

// changed says how program or machine differ from the record's; empty if they
// do not.
func (env *Env) changed(cmd *cobra.Command, r *results.Record, device Device) string {
	if now := env.identity(); !now.Equal(r.Program) {
		return "by " + unlike(r.Program, now)
	}
	if env.Machine == nil {
		return ""
	}
	subjects, beds := machine.Differences(r.Environment, env.Machine(cmd.Context(), device))
	// The program was compared above. What else is compared in other records,
	// driver and libraries, must be one thing in one record.
	subjects = slices.DeleteFunc(subjects, func(d machine.Difference) bool { return strings.HasPrefix(d.Name, "program.") })
	for _, d := range slices.Concat(beds, subjects) {
		if !d.Unknown() {
			return fmt.Sprintf("%s was %q and is %q", d.Name, d.A, d.B)
		}
	}
	return ""
}

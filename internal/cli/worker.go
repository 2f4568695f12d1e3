package cli

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
)

// workerName is the hidden command that a replicate's process runs.
const workerName = "worker"

func newWorkerCmd(env *Env) *cobra.Command {
	var libraries Libraries
	cmd := &cobra.Command{
		Use:    workerName,
		Short:  "run one replicate: a request on stdin, samples on stdout",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.useLibraries(libraries, "cuda", nil); err != nil {
				return err
			}
			return bench.Serve(cmd.Context(), env.Stdin, env.Stdout, env.Engine.RunCell)
		},
	}
	libraries.addLibraries(cmd.Flags())
	return cmd
}

// replicate runs a replicate in a process of its own or, where the program
// cannot start itself, in this one. Of one without a result no timeline stays:
// no record would name it.
func (env *Env) replicate(ctx context.Context, req bench.CellRequest) (got bench.Replicate, err error) {
	older := statTimelines(req.TraceFiles)
	defer func() {
		if err != nil {
			older.discardOthers()
		}
	}()
	if env.Program != "" {
		// A new build may stand where this program was: its figures would be taken
		// for this one's.
		return bench.Command{Path: cmp.Or(env.Executable, env.Program), Args: append([]string{env.Name, workerName}, env.GPULibraries.words()...), Dir: env.WorkDir}.Run(ctx, req)
	}
	cell, err := bench.Here(ctx, req, env.Engine.RunCell)
	return bench.Replicate{Cell: cell, PID: os.Getpid()}, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Main runs the command that env.Args names and returns the exit code.
func Main(env *Env) int {
	root := newRootCmd(env)
	err := root.ExecuteContext(env.Context)
	var kept *interruptedError
	if err != nil && env.Context.Err() != nil && !errors.As(err, &kept) {
		// What was torn down may report itself first; the cause is Ctrl-C.
		err = context.Canceled
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(env.Stderr, "trbench: %s\n", message(err))
	if h := hint(err); h != "" {
		fmt.Fprintf(env.Stderr, "hint: %s\n", h)
	}
	return exitCode(err)
}

func newRootCmd(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "trbench",
		Short: "run a training step launched one by one and captured as graphs, and say what the difference is",
		Long: `trbench runs the same training step twice, with every kernel launched by the
host (eager) and captured once and replayed (graph, step), checks that both
leave the same bits, and then times them.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return &usageError{
			text: fmt.Sprintf("%q is not a command; known: %s", args[0], strings.Join(commandNames(root), ", ")),
			hint: "trbench help says what each does",
		}
	}
	root.AddCommand(newRunCmd(env), newReportCmd(env), newWorkerCmd(env), newInspectCmd(env), newVerifyCmd(env), newInfoCmd(env), newVersionCmd(env))
	root.SetArgs(env.Args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagProblem(err) })
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// noArgs refuses words that are no flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{
		text: fmt.Sprintf("%s takes no %q; everything is a flag, as --name=value", cmd.Name(), args[0]),
		hint: cmd.CommandPath() + " --help lists them",
	}
}

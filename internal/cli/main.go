package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// graceAfterInterrupt is how long a command may take to end after Ctrl-C. What
// takes longer, such as filling a huge arena, is left: the process ends with it.
const graceAfterInterrupt = 1500 * time.Millisecond

// errAbandoned says that a command did not end in time after Ctrl-C.
var errAbandoned = fmt.Errorf("did not end: %w", context.Canceled)

// Main runs the command that env.Args names and returns the exit code. After
// Ctrl-C it may return before the command does; the caller then ends the
// process.
func Main(env *Env) int {
	out := &watched{w: env.Stdout}
	inner := *env
	inner.Stdout = out
	root := newRootCmd(&inner)
	err := out.failure(untilInterrupted(env.Context, root.ExecuteContext))
	var kept *interruptedError
	if err != nil && env.Context.Err() != nil && !errors.As(err, &kept) && !errors.Is(err, errAbandoned) {
		// What was torn down may report itself first; the cause is Ctrl-C.
		err = context.Canceled
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(env.Stderr, "trbench: %s\n", printable(message(err)))
	if h := hint(err); h != "" {
		fmt.Fprintf(env.Stderr, "hint: %s\n", printable(h))
	}
	return exitCode(err)
}

// printable shows what a terminal would obey, or show as something else, as Go
// writes it: errors name files, and what is in records of others. Lines stay.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// untilInterrupted runs a command, and leaves it if it does not end soon after
// the context has.
func untilInterrupted(ctx context.Context, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(graceAfterInterrupt):
		return errAbandoned
	}
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
		return noCommand(root, args[0])
	}
	root.AddCommand(newRunCmd(env), newProfileCmd(env), newProfiledCmd(env), newReportCmd(env), newCompareCmd(env), newAnalyzeCmd(env), newNightlyCmd(env), newBaselineCmd(env), newHistoryCmd(env), newWorkerCmd(env), newInspectCmd(env), newVerifyCmd(env), newInfoCmd(env), newVersionCmd(env))
	root.SetHelpCommand(newHelpCmd(root))
	root.SetArgs(env.Args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagProblem(err) })
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// newHelpCmd is cobra's, but that of an unknown command is an error.
func newHelpCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "say what a command does",
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return root.Help()
			}
			found, rest, err := root.Find(args)
			if err != nil || found == root || len(rest) > 0 {
				return noCommand(root, args[len(args)-max(len(rest), 1)])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

func noCommand(root *cobra.Command, name string) error {
	return &usageError{
		text: fmt.Sprintf("%q is not a command; known: %s", name, strings.Join(commandNames(root), ", ")),
		hint: "trbench help says what each does",
	}
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

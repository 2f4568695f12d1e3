package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/internal/verify"
	"github.com/tech-renaissance/trbench/results"
	traceread "github.com/tech-renaissance/trbench/timeline/read"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Exit codes.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2 // usage, input or environment
	exitInconclusive = 3 // it cannot be told, was found only once, or something is missing
	exitDisagree     = 4 // the modes computed different bits, or verify found anything else wrong
	exitInterrupted  = 130
)

// usageError is a command line that cannot be understood.
type usageError struct {
	text string
	hint string
}

func (e *usageError) Error() string { return e.text }

// flagProblem rewrites pflag's messages, which quote Go's parsers, into one
// sentence that names the flag.
func flagProblem(err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		reason := value.Unwrap().Error()
		if strings.Contains(reason, "strconv.") { // pflag's own types; of those only this one is in use
			reason = "must be true or false"
		}
		return &bench.InputError{Name: "--" + value.GetFlag().Name, Reason: fmt.Sprintf("%q %s", value.GetValue(), reason)}
	}
	return &usageError{text: err.Error(), hint: "trbench help lists the commands, trbench COMMAND --help its flags"}
}

// exitCode and hint are the one place where errors get a meaning.
func exitCode(err error) int {
	var (
		disagree *bench.DisagreementError
		input    *bench.InputError
		usage    *usageError
		write    *results.WriteError
		read     *results.ReadError
		file     *data.FileError
		failure  *verify.Failure
		output   *outputError
		unequal  *guard.UnequalError
		judged   *judgedError
		unclear  *inconclusiveError
		trace    *traceread.Error
		partial  *partialError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &disagree), errors.As(err, &failure), errors.As(err, &unequal):
		return exitDisagree
	case errors.As(err, &input), errors.As(err, &usage), errors.As(err, &write), errors.As(err, &read), errors.As(err, &file),
		errors.As(err, &output), errors.As(err, &trace):
		return exitUsage
	case errors.As(err, &partial):
		return exitInconclusive
	case errors.As(err, &judged):
		return judged.code()
	case errors.As(err, &unclear):
		return exitInconclusive
	}
	return exitFailure
}

func hint(err error) string {
	var (
		input    *bench.InputError
		usage    *usageError
		disagree *bench.DisagreementError
		doubted  *doubtedError
		kept     *interruptedError
		output   *outputError
		trace    *traceread.Error
		partial  *partialError
		unstored *unstoredError
		unclear  *inconclusiveError
		judged   *judgedError
	)
	switch {
	case errors.As(err, &judged):
		return judged.hint()
	case errors.As(err, &unstored):
		return unstored.hint()
	case errors.As(err, &unclear):
		return unclear.advice
	case errors.As(err, &output):
		if output.kept != "" {
			return "the record is kept in " + output.kept
		}
	case errors.As(err, &kept):
		if kept.night {
			return "trbench nightly with the same configuration goes on from there"
		}
		return "trbench run --resume=" + kept.file + " goes on from there"
	case errors.As(err, &input):
		return input.Hint
	case errors.Is(err, results.ErrNoSchema):
		return "trbench run writes records; traces are for trbench analyze"
	case errors.As(err, &trace):
		return trace.Hint
	case errors.As(err, &partial):
		return partial.hint
	case errors.As(err, &usage):
		return usage.hint
	case errors.As(err, &doubted):
		return doubted.hint()
	case errors.As(err, &disagree):
		return "no timing was written; trbench verify narrows it down"
	}
	return ""
}

// message is the sentence for an error.
func message(err error) string {
	var kept *interruptedError
	if errors.As(err, &kept) {
		return kept.Error()
	}
	if errors.Is(err, errAbandoned) {
		return "interrupted"
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted; nothing was written"
	}
	return strings.TrimSpace(err.Error())
}

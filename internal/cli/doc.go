// Package cli is the command line: flags, checks, output, exit codes.
//
// In the flow it comes first and last: words become a plan, the engine runs
// it, the record is stored and shown. Each command is one file and one shape:
// newXCmd(env) -> options -> validate -> run.
//
// The package keeps one rule: the outside world is one value, [Env]. No
// command reads a global, so whole commands run in tests; and only [Main]
// prints errors and chooses the exit code.
package cli

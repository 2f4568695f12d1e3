// Package machine says what a run was made on: the environment block of a
// record, what the machine takes for known small things, and the doubts that
// follow from both.
//
// In the flow it stands beside the harness: [Read] is called at the start,
// [Calibrate] on the thread that will submit, and both go into a
// [results.Environment]. [Doubts] turns that into warnings at once,
// [Differences] compares two of them later, from records alone.
//
// The package keeps one rule: it never fails and never names anybody. What
// cannot be read is a field with an empty value that says why; host and user
// names, serial numbers, device identifiers, paths that differ from machine to
// machine and environment variables outside a fixed list are not looked at or
// not passed on. It runs no command and opens no connection: everything comes
// from the files of [Sources], so that a test hands in another machine.
package machine

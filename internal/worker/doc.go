// Package worker turns one cell into samples.
//
// In the flow it is where everything meets: a request of package bench names a
// cell; the worker builds its workload, opens the device, prepares eager and
// captured executors over one session, lets bench check that all of them leave
// the same bits, then time them, and answers with a [results.Cell].
//
// The package keeps one rule: a session has one group of ranks and one arena
// a rank for all its configurations, and each of them starts from the same
// bytes.
package worker

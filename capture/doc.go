// Package capture records the step into graphs, once, and replays them.
//
// It stands beside package eager, above the walk. [Prepare] takes every rank's
// table through the named phases, from removing duplicates to the first
// replay, and returns a [Set]: in mode graph one executable for each captured
// slot, which a [walk.Walker] launches through [Set.Launcher]; in mode step
// one executable for each distinct segment, which [Set.Runner] launches whole.
//
// The package keeps one rule: it never falls back. A capture that fails, or
// that does not hold exactly the operators eager would submit, ends the run
// with the first failing call and node, and everything begun is released.
package capture

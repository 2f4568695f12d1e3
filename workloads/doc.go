// Package workloads says what a training step is: its sub-graphs, the memory
// they use, the order they run in, and the checks that need no device.
//
// It stands on the ground floor. A [Spec] names one thing to train; [New]
// turns it, with the abilities of a [Target], into a [Workload]: a list of
// nodes for each of the 33 sub-graphs, one fixed memory plan, the static
// atlas of 6 variants by 33 sub-graphs, and a schedule that is data. Every
// mode walks that one schedule; every device runs those nodes.
//
// The package keeps one rule: it is pure description. It imports nothing but
// the standard library, knows no device, starts no goroutine and reads no
// clock.
package workloads

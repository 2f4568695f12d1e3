// Package bench is the harness: what is run, in which order, how often, and
// what is made of the samples.
//
// In the flow it stands between the command line and the worker: flags become
// a [Plan], each of its cells becomes a [CellRequest], and the worker answers
// with a [results.Cell].
//
// The package keeps one rule: it knows neither how a step is submitted nor
// how it is captured; it times what is handed to it.
package bench

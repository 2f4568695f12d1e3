// Package report turns records into what people read.
//
// In the flow it comes last: it sees a [results.Record] and nothing else, so
// a table can be made again from the file, on another machine, years later.
//
// The package keeps one rule: units are scaled and figures are rounded here
// and only here; and a doubt in the record is printed with the figure.
package report

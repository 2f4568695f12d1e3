// Package report turns records into what people read: tables for a terminal,
// Markdown and CSV, Go benchmark format, and plots.
//
// In the flow it comes last: it sees [results.Record] and nothing else, so a
// report can be made again from the files, on another machine, years later.
// [Write] makes all of it; [Table], [Tables], [Markdown], [CSV], [Gobench] and
// [Draw] make one part each.
//
// The package keeps one rule: units are scaled and figures are rounded here
// and only here; no figure is recomputed that a record carries, and a doubt in
// the record is printed with the figure.
package report

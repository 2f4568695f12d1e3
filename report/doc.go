// Package report turns records into what people read: tables for a terminal,
// Markdown and CSV, Go benchmark format, and plots.
//
// In the flow it comes last: of a run it sees [results.Record] and nothing else,
// so a report can be made again from the files, on another machine, years later.
// [Write] makes all of it; [Table], [Tables], [Markdown], [CSV], [Gobench] and
// [Draw] make one part each.
//
// [StepTimelines], [GapLengths] and [StepBars] are pictures of traces. They see
// timelines, or sums over them, and what their caller says of the run; [Save]
// writes them.
//
// [Gobench] is for benchstat, which compares the modes of a written report:
//
//	benchstat -col /mode report.bench
//
// With 3 processes every delta of a measured figure is ~, as its test needs
// at least 4 replicates; counts are exact.
//
// The total of preparation is prepare_ns wherever it stands, in a plot, in CSV
// and in Go's benchmark format: the median over processes of each one's sum
// over phases, which is not the sum of the phases' medians.
//
// The package keeps one rule: units are scaled and figures are rounded here
// and only here; no figure is recomputed that a record carries, and a doubt in
// the record is printed with the figure.
package report

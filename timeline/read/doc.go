// Package read turns recordings of others into timelines: Chrome JSON of
// PyTorch's profiler (Kineto) of any age, Nsight Systems' SQLite exports, and
// what timeline/write wrote. [File] tells them apart by what is in them.
//
// It stands before the analysis: nothing in it knows what a gap is. The rule it
// keeps: a time stays an integer from the file's text on, and what could not be
// understood is counted, with where it was; nothing is dropped in silence.
package read

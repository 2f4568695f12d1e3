// Package history keeps what each night measured, for good, and finds when a
// row changed its level.
//
// It stands beside the records it is made from: a nightly run hands it records
// and verdicts, and lists, plots and pages read series and change points from
// it. The folder's files are the truth:
//
//	nights/       a file a night: its verdict and each row's process medians
//	records/      the records behind a night, thinned as they grow old
//	programs/     the programs that made pinned records
//	pins.jsonl    which records are the baseline, and since when
//	acknowledgements.jsonl
//	index.sqlite  made from nights/, for speed; can be lost
//
// The package keeps one rule: a night's file is written once, under a name that
// holds its number and the hash of its bytes, and names the one before it by
// hash. So files that were cut, edited, copied or renamed are told apart, and
// nothing is read past one. The lines of pins and acknowledgements have a digest
// each, over the one before; how many there were the index knows.
package history

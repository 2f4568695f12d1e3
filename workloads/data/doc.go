// Package data makes the batches a workload trains on: synthetic ones and
// CIFAR-10.
//
// In the flow it stands before the first copy: whoever walks the schedule asks
// a [Source] to fill a pinned half, images (U8, N,H,W,C) and labels (int32,
// little endian), and TRANSFER takes it from there.
//
// The package keeps one rule: a batch is a pure function of (seed, split,
// rank, ranks, index), so every mode and every process feeds the same bytes.
package data

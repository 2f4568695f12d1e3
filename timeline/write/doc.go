// Package write puts a timeline into a Chrome trace, JSON that Perfetto,
// chrome://tracing and tools for PyTorch's profiler open.
//
// It stands after the analysis: whoever has a [timeline.Index] can export it.
// The rule it keeps: what is read back has the same figures, to the nanosecond.
//
// Names and categories are Kineto's where it has any: kernel, gpu_memcpy and
// gpu_memset with args device, stream, correlation, bytes, "graph id" and
// "graph node id"; cuda_runtime and cuda_driver; cpu_op, user_annotation,
// python_function, overhead; flows ac2g from a launch to its ops. Times are
// microseconds with three decimals, printed from integers.
//
// What Kineto has no name for:
//
//   - The object trbench, before the events: format and version, and what stands
//     behind each pid and tid: processes, threads, devices and streams in the
//     timeline's order, each thread and stream with all its tids. tids are unique
//     over the whole file, as Perfetto names threads by tid alone; they are the
//     recording's own numbers where these are free. Its untimed list has the ops
//     without usable times, which no event can carry, and its read object says
//     what was lost before. origin_ns is the timeline's origin, if that is known,
//     and shift_ns was added to all its times: the first event of a trace that
//     would begin at or before 0, or far from it, is put at 1 us.
//   - args.class is the class of a range of category user_annotation (user, step,
//     feed), and of a call whose name does not say it (other, launch,
//     graph_launch, copy, sync).
//   - args.kind is "envelope" for a graph's replay recorded as one op.
//   - args.domain is a range's NVTX domain.
//   - Counters of category derived are computed from the rest, and not to be read
//     back.
//
// Two events of one thread that overlap without one holding the other, and two
// ops of one stream that overlap at all, stand on tids of their own: Perfetto
// drops the second of two on one. That goes by the times that it reads, which
// may lack a nanosecond.
//
// Texts are ASCII with escapes; characters beyond the first 65,536 are replaced.
package write

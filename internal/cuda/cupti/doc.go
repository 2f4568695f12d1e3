// Package cupti records what a GPU and the CUDA driver did, by CUPTI's activity
// interface, without cgo.
//
// It stands between libcupti, which [Open] finds at run time, and package
// timeline, into which [Records.Timeline] turns what was recorded. The order is
// [API.Start] (kinds on, buffers lent), the work, [Tracer.Drain] (buffers back,
// records read), [Tracer.Stop].
//
// Buffers lie outside the Go heap and are all made before recording begins:
// CUPTI asks for them and hands them back on threads of its own, and in the
// middle of a launch, so what runs there takes no lock, makes nothing and looks
// at a fixed array of atomic words alone. Records are read later, by whoever
// drains. Where no buffer is free CUPTI drops records, and both sides of that
// are counted.
//
// Records have grown with CUDA's versions, always at their end: [LayoutFor]
// knows their sizes by version, and reading a live buffer takes the library's
// own word for where each ends.
//
// The package keeps one rule: a buffer is data from elsewhere. [Parse] is a
// function of bytes alone, and whatever they are it neither fails nor reads
// beyond them; what it cannot understand it counts.
package cupti

// Package nvtx is a client of NVTX, version 3, without cgo: it names ranges,
// threads, streams and devices for whatever tool watches the process.
//
// It stands beside the flow: the command line opens one [Client] ([Open]) and
// hands it down to what submits, captures and times. There is no library to
// link: a tool is a shared library that the environment names in
// NVTX_INJECTION64_PATH. The client loads it and offers it tables of function
// slots, which the tool fills; calls then go through the slots. Nsight Systems
// and Nsight Compute set the variable themselves.
//
// The package keeps one rule: without a tool everything is nil, and a call on
// nil is one branch. With one, a range is laid out when it is made, so that
// pushing and popping it allocates nothing.
//
// Sources: NVTX 3 headers, nvtxDetail (tables and their order) and nvToolsExt.h
// (functions and attributes).
package nvtx

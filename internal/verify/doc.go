// Package verify is the fixed matrix behind `trbench verify`.
//
// It stands above the worker, whose sessions it drives. For each entry of the
// matrix it checks the workload without a device (empty slots, data flow,
// order, hazards with each edge dropped in turn), trains an epoch at both
// resolutions with a last partial batch, validates and runs the stand-alone
// chain in every configuration from one snapshot, compares all state bit for
// bit, counts the operators the device executed, and watches, sub-graph by
// sub-graph, whether bytes of its declared output changed.
//
// The package keeps one rule: what counts as run is decided by what the device
// executed and which bytes changed, never by what was asked of it.
package verify

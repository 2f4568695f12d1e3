// Package walk drives one rank through the schedule.
//
// It stands between the device seam and the modes. A [Table] holds every
// operator of a rank, prepared once; a [Walker] takes a segment's actions from
// [workloads.Workload.Schedule] and turns them into submissions, joins, feeds
// and control, leaving only the submission of a sub-graph to a [Launcher].
// Package eager and package capture supply launchers; both modes therefore
// join, feed and keep time in exactly the same code.
//
// The package keeps one rule: nothing on the path of a step allocates,
// creates a device object or reads a schedule. All of that happens when a
// table or a walker is made.
package walk

// Package calibrate measures what small things cost on one GPU: an empty driver
// call, a launch, graphs by node count, joins and forks.
//
// In the flow it stands beside the device: its readings go into the calibration
// of a record's environment block, where a launch overhead or a gap between
// nodes finds what it is to be compared with. scripts/launch_floor.cu prints
// the same names, measured in C++.
//
// The readings, each a median over n observations, in nanoseconds unless the name
// says otherwise. Those under launch, call and sync are host time.
//
//	call.driver_ns              a driver call that does nothing, through the binding
//	launch.kernel_ns            submit one empty kernel; the queue never fills
//	launch.kernel_dependent_ns  the same with programmatic dependent launch (9.0 on)
//	launch.graph_N_ns           submit a graph of N empty kernels in a chain
//	launch.graph_fit_base_ns    straight line through those: at 0 nodes,
//	launch.graph_fit_node_ns    and for each node;
//	launch.graph_fit_r2         how much of their variation it explains (ratio)
//	graph.capture_N_ns          capture it, begin to end
//	graph.instantiate_N_ns
//	graph.first_launch_N_ns     submit it for the first time, nothing uploaded
//	graph.e2e_N_ns              host: submit to an idle GPU and wait until it is done
//	graph.e2e_fit_...           the straight line through those
//	graph.gpu_N_ns              GPU: between events around it, all submitted before it begins
//	graph.gpu_fit_...           the line; gpu_fit_node_ns is what a node boundary costs at least
//	graph.fork_join_W_ns        GPU: a level of a fork kernel, W side by side, a join kernel
//	sync.device_idle_ns         wait for an idle context,
//	sync.stream_idle_ns         for an idle stream
//	sync.event_idle_ns          record an event and make another stream wait for it, both idle
//	sync.event_queued_ns        the same behind a kernel that runs
//	sync.device_busy_ns         submit a kernel of about 50 us and wait: what that takes
//	sync.stream_busy_ns         beyond the kernel's own time, which is the difference
//	sync.event_busy_ns          between one of twice as many cycles and one,
//	sync.burn_gpu_ns            which this is
//
// The package keeps one rule: it leaves nothing behind. Every handle is given
// back on every path, the first failure is the one returned.
package calibrate

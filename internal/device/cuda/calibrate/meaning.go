package calibrate

import "regexp"

// meanings say in a few words what readings are; N is a number of nodes or a width.
var meanings = []struct {
	name *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`^call\.driver_ns$`), "host: a driver call that does nothing"},
	{regexp.MustCompile(`^launch\.kernel_ns$`), "host: submitting one empty kernel"},
	{regexp.MustCompile(`^launch\.kernel_dependent_ns$`), "host: the same with programmatic dependent launch"},
	{regexp.MustCompile(`^launch\.graph_\d+_ns$`), "host: submitting a graph of so many empty kernels in a chain"},
	{regexp.MustCompile(`^graph\.capture_\d+_ns$`), "host: capturing it"},
	{regexp.MustCompile(`^graph\.instantiate_\d+_ns$`), "host: instantiating it"},
	{regexp.MustCompile(`^graph\.first_launch_\d+_ns$`), "host: submitting it for the first time"},
	{regexp.MustCompile(`^graph\.e2e_\d+_ns$`), "host: submitting it to an idle GPU and waiting"},
	{regexp.MustCompile(`^graph\.gpu_\d+_ns$`), "GPU: the graph, between events"},
	{regexp.MustCompile(`_fit_base_ns$`), "straight line through those, at 0 nodes"},
	{regexp.MustCompile(`_fit_node_ns$`), "the line, a node"},
	{regexp.MustCompile(`_fit_r2$`), "how much of their variation the line explains"},
	{regexp.MustCompile(`^graph\.fork_join_\d+_ns$`), "GPU: a level of a fork, so many kernels side by side, and a join"},
	{regexp.MustCompile(`^sync\.device_idle_ns$`), "host: waiting for an idle context"},
	{regexp.MustCompile(`^sync\.stream_idle_ns$`), "host: waiting for an idle stream"},
	{regexp.MustCompile(`^sync\.event_idle_ns$`), "host: recording an event and having another stream wait, both idle"},
	{regexp.MustCompile(`^sync\.event_queued_ns$`), "host: the same behind a kernel that runs"},
	{regexp.MustCompile(`^sync\.(device|stream|event)_busy_ns$`), "host: submitting a kernel of about 50 us and waiting, less the kernel's time"},
	{regexp.MustCompile(`^sync\.burn_gpu_ns$`), "GPU: that kernel's time"},
}

// Meaning says what a reading of [Run] is, in a few words; empty for others.
func Meaning(reading string) string {
	for _, m := range meanings {
		if m.name.MatchString(reading) {
			return m.text
		}
	}
	return ""
}

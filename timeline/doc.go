// Package timeline holds what happened on a GPU and on its host, on one axis of
// integer nanoseconds, and the arithmetic of gaps on it: busy and idle time by
// device and stream, and to whom an idle nanosecond is charged.
//
// It stands between whatever recorded the events (CUPTI in this program, or
// another profiler's file through timeline/read) and whatever shows them
// (reports, pictures, timeline/write). The rule it keeps: all figures are
// integers that add up; nothing passes through a float before it is printed.
package timeline

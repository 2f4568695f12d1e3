package cli

import (
	"sync"

	"github.com/tech-renaissance/trbench/nvtx"
	"github.com/tech-renaissance/trbench/results"
)

// Tool is what the environment says of a tool that watches by NVTX.
type Tool struct {
	// Path is what was named; empty for none.
	Path     string `json:"path"`
	Attached bool   `json:"attached"`
	// Problem says why it is not attached, or takes nothing.
	Problem string `json:"problem,omitempty"`
}

// sentence is how info says it.
func (t Tool) sentence() string {
	switch {
	case t.Path == "":
		return "no tool (" + nvtx.PathVariable + " is not set)"
	case t.Attached && t.Problem != "":
		return "tool " + t.Path + " attached, but " + t.Problem
	case t.Attached:
		return "tool " + t.Path + " attached"
	}
	return t.Problem
}

// watcher attaches the tool that the environment names: once, and only when
// something is shown to it. It is safe for concurrent use.
type watcher struct {
	getenv func(string) string
	once   sync.Once
	client *nvtx.Client
	err    error
}

func (w *watcher) attach() (*nvtx.Client, error) {
	w.once.Do(func() { w.client, w.err = nvtx.Open(w.getenv(nvtx.PathVariable), nvtx.Domain) })
	return w.client, w.err
}

// describe attaches the tool and says what became of it.
func (w *watcher) describe() Tool {
	client, err := w.attach()
	t := Tool{Path: w.getenv(nvtx.PathVariable), Attached: client != nil}
	switch {
	case err != nil:
		t.Problem = err.Error()
	case client.Deaf():
		t.Problem = "it takes no ranges"
	}
	return t
}

// doubt says in a cell that a tool was named and is not attached: whoever
// looks for ranges then knows why there are none.
func (w *watcher) doubt(c *results.Cell) {
	if w.err != nil && c != nil {
		c.Warnings = append(c.Warnings, results.Warning{Code: "tool_not_attached", Text: w.err.Error()})
	}
}

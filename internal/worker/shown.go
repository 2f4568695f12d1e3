package worker

import (
	"fmt"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/workloads"
)

// show gives the tables to the tool and names threads, devices and streams.
func (s *Session) show() error {
	c := s.opts.Tool
	if c == nil {
		return nil
	}
	return s.each(func(r device.Rank) error {
		rank := fmt.Sprintf("rank %d", r.ID())
		c.NameThread(rank)
		if h, ok := r.(device.Handles); ok {
			c.NameCuDevice(h.CuDevice(), rank)
			for st := range workloads.NumStreams {
				c.NameCuStream(h.CuStream(st), rank+" "+st.String())
			}
		}
		s.tables[r.ID()].Show(c)
		return nil
	})
}

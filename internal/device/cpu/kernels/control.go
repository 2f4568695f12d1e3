package kernels

import "github.com/tech-renaissance/trbench/workloads"

func buildControl(c *compiler) func() {
	table, in, out := c.f32(c.in(0)), c.scalars(c.in(1)), c.scalars(c.out(0))
	rule := c.b.Attr.Control
	if rule.Rates < 1 || rule.Rates > len(table) {
		c.fail(c.in(0), "has %d learning rates, the rule uses %d", len(table), rule.Rates)
	}
	return func() {
		s := workloads.DecodeScalars(in)
		s.Advance(rule, table)
		s.Put(out)
	}
}

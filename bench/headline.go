package bench

import (
	"fmt"

	"github.com/tech-renaissance/trbench/results"
)

// headline compares eager/event with device control with the captured
// configuration of the least step time, or says why it does not.
func headline(c *results.Cell) results.Headline {
	base, best := plainEager(c), bestCaptured(c)
	withheld := func(why string) results.Headline {
		return results.Headline{Withheld: why, SplitWithheld: why}
	}
	switch {
	case c.Status == results.Failed:
		return withheld("the cell failed")
	case c.Key.Device == "cpu":
		return withheld("a CPU record shows the method, not the gain")
	case base == nil:
		return withheld("eager/event/device was not run; add --mode=eager --sync=event")
	case best == nil:
		return withheld("no captured mode was run; add --mode=graph or step")
	}
	logs := logRatios(results.StepTimeNs, base, best)
	if len(logs) < 2 {
		return withheld("one process gives no interval; use --processes=3 or more")
	}
	h := results.Headline{Ratio: RatioOf(results.StepTimeNs, base.Key, best.Key, logs)}
	h.Split, h.SplitWithheld = split(c, base, best)
	return h
}

// bestCaptured is the captured configuration with device control and the
// least median step time, or nil.
func bestCaptured(c *results.Cell) *results.Configuration {
	var best *results.Configuration
	least := 0.0
	for i := range c.Configurations {
		x := &c.Configurations[i]
		m := x.Metric(results.StepTimeNs)
		if x.Key.Mode == "eager" || x.Key.Control != "device" || m == nil {
			continue
		}
		if best == nil || m.Value < least {
			best, least = x, m.Value
		}
	}
	return best
}

// split divides the speed-up from eager with host joins to the best captured
// configuration without them. The four corners are eager and captured, each
// with host joins and without; captured with host joins is graph/host. Going
// over either of the other two corners takes fewer joins and fewer launches in
// one order; the mean over both orders is theirs.
func split(c *results.Cell, eagerEvent, captured *results.Configuration) (*results.Split, string) {
	corner := func(mode string) *results.Configuration {
		return findConfiguration(c, func(k results.ConfigurationKey) bool {
			return k.Mode == mode && k.Sync == "host" && k.Control == "device" && k.DispatchNs == 0 &&
				(mode != "eager" || k.Launcher == eagerEvent.Key.Launcher)
		})
	}
	eagerHost, graphHost := corner("eager"), corner("graph")
	switch {
	case eagerHost == nil || graphHost == nil:
		missing := "eager/host/device"
		if eagerHost != nil {
			missing = "graph/host/device"
		}
		return nil, fmt.Sprintf("the corner %s was not run; use --mode=eager,graph --sync=event,host", missing)
	case captured == graphHost:
		captured = findConfiguration(c, func(k results.ConfigurationKey) bool {
			return k.Mode == "graph" && k.Sync == "event" && k.Control == "device"
		})
		if captured == nil {
			return nil, "the corner graph/event/device was not run; use --mode=eager,graph --sync=event,host"
		}
	}
	// All three against the fourth, block by block, so that parts add up.
	host := logRatios(results.StepTimeNs, eagerEvent, eagerHost)
	best := logRatios(results.StepTimeNs, eagerEvent, captured)
	both := logRatios(results.StepTimeNs, eagerEvent, graphHost)
	if len(host) != len(best) || len(host) != len(both) {
		return nil, "not every process has all four corners"
	}
	var total, joins, launches, interaction []float64
	for p := range host {
		whenEager, whenCaptured := -host[p], best[p]-both[p] // fewer joins
		withHost, withEvent := both[p]-host[p], best[p]      // fewer launches
		total = append(total, best[p]-host[p])
		joins = append(joins, (whenEager+whenCaptured)/2)
		launches = append(launches, (withHost+withEvent)/2)
		interaction = append(interaction, whenCaptured-whenEager)
	}
	ratio := func(logs []float64) results.Ratio {
		return *RatioOf(results.StepTimeNs, eagerHost.Key, captured.Key, logs)
	}
	return &results.Split{Total: ratio(total), Joins: ratio(joins), Launches: ratio(launches), Interaction: ratio(interaction)}, ""
}

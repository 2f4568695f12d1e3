package worker

import (
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
)

// Custom makes an executor whose sub-graphs are submitted by the caller's own
// launchers, one a rank, made on the rank's thread. Package verify watches
// sub-graphs with it. It is not kept by key.
func (s *Session) Custom(k results.ConfigurationKey, launcher func(r device.Rank, t *walk.Table) walk.Launcher) (*Executor, error) {
	cfg, err := parseKey(k)
	if err != nil {
		return nil, err
	}
	x := &Executor{s: s, key: k, runners: make([]walk.Runner, s.group.Ranks())}
	if x.launcher, err = s.launcherOf(k); err != nil {
		return nil, err
	}
	err = s.each(func(r device.Rank) (err error) {
		i := r.ID()
		x.runners[i], err = walk.NewWalker(r, s.tables[i], cfg, launcher(r, s.tables[i]), s.feeders[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	s.order = append(s.order, x)
	return x, nil
}

package machine

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// Read describes the machine, the program and the libraries. Fields stand in a
// fixed order; each field of this package is there, with or without a value.
// It takes a few milliseconds, some hundred file reads on a large server. What
// is not read when the context ends says so. Calibration is left empty.
func Read(ctx context.Context, s Sources) results.Environment {
	b := block{tree: tree{ctx, s.Root}}
	b.subject(s)
	b.gpu(s.GPU)
	b.cpu()
	b.memory()
	b.system(s)
	b.cgroups()
	b.number(GoMaxProcs, s.Go.MaxProcs, nil)
	b.variables(s.LookupEnv)
	b.moment(s.GPU)
	return b.env
}

// Now reads what changes from minute to minute: load, temperatures, clocks and
// what holds them down. It takes a few milliseconds.
func Now(ctx context.Context, s Sources) []results.Reading {
	b := block{tree: tree{ctx, s.Root}}
	text, _ := b.text("proc/cpuinfo")
	b.cpuinfo = parseCPUInfo(text)
	now := b.hz
	if policies := b.policyClocks(); len(policies) > 0 {
		now = policies
	}
	b.clocks(now)
	b.moment(s.GPU)
	return b.env.Readings
}

// moment adds load, temperatures and throttling.
func (b *block) moment(g GPU) {
	b.load()
	b.temperatures()
	b.throttles()
	if g != nil {
		for _, r := range g.Readings() {
			b.reading(r.Name, r.Unit, r.Value, r.N)
		}
	}
}

// block is an environment being filled.
type block struct {
	tree
	env results.Environment
	cpuinfo
}

func (b *block) add(name, role, value, why string) {
	b.env.Fields = append(b.env.Fields, results.EnvironmentField{Name: name, Role: role, Value: value, Why: why})
}

// bed adds a field of the bed: the value, or why there is none.
func (b *block) bed(name, value string, err error) {
	if value == "" && err != nil {
		b.add(name, results.Bed, "", clean(err.Error()))
		return
	}
	b.add(name, results.Bed, value, "")
}

// reading adds a figure. One that is not a number is dropped: a record cannot
// hold it, and the absence of a reading says enough.
func (b *block) reading(name, unit string, value float64, n int) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	b.env.Readings = append(b.env.Readings, results.Reading{Name: name, Unit: unit, Value: value, N: n})
}

// subject adds the program and how it was built.
func (b *block) subject(s Sources) {
	put := func(name, value, why string) {
		if value != "" {
			why = ""
		}
		b.add(name, results.Subject, clean(value), why)
	}
	put(ProgramVersion, s.Program.Version, "the build carries no version")
	const noRevision = "the build carries no revision; build inside a checkout"
	revision, noDirty := s.Program.Revision, noRevision
	if s.Program.RevisionFrom == results.FromCheckout {
		revision += " (from the checkout)"
		noDirty = "the revision is the checkout's, and nothing compared it with the files"
	}
	put(ProgramRevision, revision, noRevision)
	dirty := ""
	if d := s.Program.Dirty; d != nil && s.Program.Revision != "" {
		dirty = strconv.FormatBool(*d)
	}
	put(ProgramDirty, dirty, noDirty)
	put(GoVersion, s.Program.Go, "the program does not say")

	const noSettings = "the build carries no settings"
	setting := func(key, absent string) string {
		switch v, ok := s.Go.Settings[key]; {
		case s.Go.Settings == nil:
			return ""
		case !ok || v == "":
			return absent
		default:
			return v
		}
	}
	why := noSettings
	if s.Go.Settings != nil {
		why = "this architecture has no level"
	}
	put(GoArchLevel, setting("GO"+strings.ToUpper(s.Go.Arch), ""), why)
	put(GoExperiment, setting("GOEXPERIMENT", none), noSettings)
	put(GoTags, setting("-tags", none), noSettings)
	switches := map[string]string{"1": on, "0": off, "true": on, "false": off}
	put(GoCgo, switches[setting("CGO_ENABLED", "0")], noSettings)
	put(GoRace, switches[setting("-race", "false")], noSettings)
}

package machine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// cpuinfo is what /proc/cpuinfo says.
type cpuinfo struct {
	processors int
	models     map[string]int // processors by model
	// cores and sockets are 0 where not every processor says where it sits,
	// as on ARM.
	cores, sockets int
	hz             []float64 // now, of the processors that say
	flags          bool      // there are x86 flags, so a missing one means something
	hypervisor     bool
}

// parseCPUInfo reads the text of /proc/cpuinfo of any architecture. Blank
// lines separate processors; a block without a "processor" line describes the
// board (and on some holds its serial number) and is passed over.
func parseCPUInfo(text string) cpuinfo {
	info := cpuinfo{models: map[string]int{}}
	type place struct{ socket, core string }
	cores, sockets := map[place]bool{}, map[string]bool{}
	placed := 0
	for part := range strings.SplitSeq(text, "\n\n") {
		keys := map[string]string{}
		for line := range strings.Lines(part) {
			key, value, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if _, again := keys[key]; !again {
				keys[key] = value
			}
		}
		if _, ok := keys["processor"]; !ok {
			continue
		}
		info.processors++
		if m := model(keys); m != "" {
			info.models[m]++
		}
		socket, hasSocket := keys["physical id"]
		core, hasCore := keys["core id"]
		if hasSocket && hasCore {
			placed++
			cores[place{socket, core}], sockets[socket] = true, true
		}
		if mhz, err := strconv.ParseFloat(keys["cpu MHz"], 64); err == nil && mhz > 0 && mhz < 1e5 {
			info.hz = append(info.hz, mhz*1e6)
		}
		if flags, ok := keys["flags"]; ok {
			info.flags = true
			info.hypervisor = info.hypervisor || slices.Contains(strings.Fields(flags), "hypervisor")
		}
	}
	if placed == info.processors {
		info.cores, info.sockets = len(cores), len(sockets)
	}
	return info
}

// model names a processor. Arm cores give numbers only: Arm's own are named
// here as in its technical reference manuals, others stay numbers.
func model(keys map[string]string) string {
	for _, key := range []string{"model name", "cpu model", "uarch", "cpu"} {
		if m := clean(keys[key]); m != "" {
			return m
		}
	}
	maker, part := keys["CPU implementer"], keys["CPU part"]
	if maker == "" || part == "" {
		return ""
	}
	if name := armParts[part]; maker == "0x41" && name != "" {
		return "Arm " + name
	}
	if name := armMakers[maker]; name != "" {
		return clean(name + " part " + part)
	}
	return clean("Arm implementer " + maker + " part " + part)
}

var armMakers = map[string]string{
	"0x41": "Arm", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x50": "Applied Micro",
	"0x51": "Qualcomm", "0x61": "Apple", "0x6d": "Microsoft", "0xc0": "Ampere",
}

var armParts = map[string]string{
	"0xd03": "Cortex-A53", "0xd04": "Cortex-A35", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57",
	"0xd08": "Cortex-A72", "0xd09": "Cortex-A73", "0xd0a": "Cortex-A75", "0xd0b": "Cortex-A76",
	"0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd42": "Cortex-A78AE", "0xd49": "Neoverse-N2",
	"0xd4f": "Neoverse-V2", "0xd83": "Neoverse-V3", "0xd8e": "Neoverse-N3",
}

// tally lists what there is several of: one name alone, or "4 x a, 2 x b",
// the most frequent first.
func tally(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	for i, n := range names {
		names[i] = fmt.Sprintf("%d x %s", counts[n], n)
	}
	return clean(strings.Join(names, ", "))
}

// parseCPUList counts the CPUs of a list such as "0-3,8".
func parseCPUList(text string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 20)
		if err != nil {
			return 0, fmt.Errorf("%q is not a list of numbers", clean(text))
		}
		b, err := strconv.ParseUint(last, 10, 20)
		if err != nil || b < a {
			return 0, fmt.Errorf("%q is not a list of numbers", clean(text))
		}
		n += int(b-a) + 1
	}
	return n, nil
}

// number adds a count to the bed; 0 is none.
func (b *block) number(name string, n int, err error) {
	value := ""
	if n > 0 {
		value = strconv.Itoa(n)
	} else if err == nil {
		err = errors.New("nothing here says")
	}
	b.bed(name, value, err)
}

const (
	cpus     = "sys/devices/system/cpu"
	policies = cpus + "/cpufreq"
)

// cpu adds the processors, where they sit and what governs their clock.
func (b *block) cpu() {
	text, err := b.text("proc/cpuinfo")
	b.cpuinfo = parseCPUInfo(text)
	if err == nil && len(b.models) == 0 {
		err = errors.New("/proc/cpuinfo names no model")
	}
	b.bed(CPUModel, tally(b.models), err)

	threads, err := b.listed(cpus + "/online")
	if threads == 0 {
		threads = b.processors
	}
	sockets, cores := b.sockets, b.cores
	if cores == 0 {
		sockets, cores = b.topology()
	}
	const unplaced = "neither /proc/cpuinfo nor /sys says where the CPUs sit"
	b.number(CPUSockets, sockets, errors.New(unplaced))
	b.number(CPUCores, cores, errors.New(unplaced))
	b.number(CPUThreads, threads, err)
	b.usable()

	smt, err := b.toggle(cpus+"/smt/active", false)
	if smt == "" && cores > 0 && threads > 0 {
		smt = off
		if threads > cores {
			smt = on
		}
	}
	b.bed(CPUSMT, smt, err)
	b.frequency()

	nodes, err := b.listed("sys/devices/system/node/online")
	b.number(NUMANodes, nodes, err)
}

// listed counts the CPUs or nodes that a file lists.
func (b *block) listed(name string) (int, error) {
	text, err := b.text(name)
	if err != nil {
		return 0, err
	}
	n, err := parseCPUList(text)
	if err != nil {
		return 0, fmt.Errorf("/%s: %w", name, err)
	}
	return n, nil
}

// topology counts packages and cores from the lists of siblings, which are
// unique where ids are not: core ids repeat in every cluster of an Arm chip.
func (b *block) topology() (sockets, cores int) {
	packages, siblings := map[string]bool{}, map[string]bool{}
	for _, name := range b.list(cpus) {
		if id, ok := strings.CutPrefix(name, "cpu"); !ok || !digits(id) {
			continue
		}
		folder := cpus + "/" + name + "/topology/"
		if text, err := b.text(folder + "thread_siblings_list"); err == nil {
			siblings[text] = true
		}
		text, err := b.text(folder + "package_cpus_list")
		if err != nil { // before Linux 5.4
			text, err = b.text(folder + "core_siblings_list")
		}
		if err == nil {
			packages[text] = true
		}
	}
	return len(packages), len(siblings)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// usable adds how many CPUs this process may run on.
func (b *block) usable() {
	text, err := b.text("proc/self/status")
	if err != nil {
		b.number(CPUUsable, 0, err)
		return
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			n, err := parseCPUList(value)
			b.number(CPUUsable, n, err)
			return
		}
	}
	b.number(CPUUsable, 0, errors.New("/proc/self/status lists no CPUs"))
}

// toggle reads a file that holds 0 or 1. If inverted, 0 is on.
func (b *block) toggle(name string, inverted bool) (string, error) {
	text, err := b.text(name)
	switch {
	case err != nil:
		return "", err
	case text != "0" && text != "1":
		return "", fmt.Errorf("/%s holds neither 0 nor 1", name)
	case (text == "1") != inverted:
		return on, nil
	}
	return off, nil
}

// frequency adds what governs the clock, and the clock now.
func (b *block) frequency() {
	governors, drivers, hints, boosts := set{}, set{}, set{}, set{}
	limit := 0.0
	for _, folder := range b.policies() {
		governors.add(b.word(folder + "scaling_governor"))
		drivers.add(b.word(folder + "scaling_driver"))
		hints.add(b.word(folder + "energy_performance_preference"))
		boosts.add(b.toggle(folder+"boost", false))
		limit = max(limit, b.kHz(folder+"scaling_max_freq"))
	}
	absent := fmt.Errorf("/%s lists no policy; a virtual machine seldom has one", policies)
	b.bed(CPUGovernor, governors.String(), absent)
	b.bed(CPUFrequencyDriver, drivers.String(), absent)
	b.bed(CPUEnergyPreference, hints.String(), errors.New("the frequency driver has no such hint"))
	text := ""
	if limit > 0 {
		text = strconv.FormatFloat(limit, 'f', 0, 64)
	}
	b.bed(CPULimitHz, text, absent)
	b.boost(boosts)

	now := b.policyClocks()
	if len(now) == 0 {
		now = b.hz
	}
	b.clocks(now)
}

// policies are the folders of frequency policies, one for CPUs that share a
// clock.
func (b *block) policies() []string {
	var folders []string
	for _, name := range b.list(policies) {
		if strings.HasPrefix(name, "policy") {
			folders = append(folders, policies+"/"+name+"/")
		}
	}
	return folders
}

// policyClocks are the clocks now, by policy.
func (b *block) policyClocks() []float64 {
	var now []float64
	for _, folder := range b.policies() {
		if hz := b.kHz(folder + "scaling_cur_freq"); hz > 0 {
			now = append(now, hz)
		}
	}
	return now
}

// throttles adds how often heat has held CPUs down since the system started,
// which x86 kernels count.
func (b *block) throttles() {
	sum, n := 0.0, 0
	for _, name := range b.list(cpus) {
		if id, ok := strings.CutPrefix(name, "cpu"); !ok || !digits(id) {
			continue
		}
		for _, count := range []string{"core", "package"} {
			text, err := b.text(cpus + "/" + name + "/thermal_throttle/" + count + "_throttle_count")
			if err != nil {
				continue
			}
			if v, err := strconv.ParseUint(text, 10, 52); err == nil {
				sum, n = sum+float64(v), n+1
			}
		}
	}
	if n > 0 {
		b.reading(CPUThrottles, unitCount, sum, n)
	}
}

// boost adds whether the CPU may exceed its base clock. Where it is switched
// depends on the driver.
func (b *block) boost(policies set) {
	state, err := b.toggle(cpus+"/intel_pstate/no_turbo", true)
	if err != nil {
		state, err = b.toggle(cpus+"/cpufreq/boost", false)
	}
	if err != nil {
		state = policies.String()
	}
	b.bed(CPUBoost, state, errors.New("no frequency driver says"))
}

func (b *block) clocks(hz []float64) {
	if len(hz) == 0 {
		return
	}
	slices.Sort(hz)
	b.reading(CPUFrequencyHz, unitHz, quantile(hz, .5), len(hz))
	b.reading(CPUFrequencyMinHz, unitHz, hz[0], len(hz))
	b.reading(CPUFrequencyMaxHz, unitHz, hz[len(hz)-1], len(hz))
}

func (b *block) kHz(name string) float64 {
	text, err := b.text(name)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseUint(text, 10, 40)
	if err != nil {
		return 0
	}
	return float64(v) * 1e3
}

// set is a set of words, for what each CPU has its own of.
type set map[string]bool

func (s set) add(word string, err error) {
	if err == nil && word != "" {
		s[word] = true
	}
}

func (s set) String() string {
	return clean(strings.Join(slices.Sorted(maps.Keys(s)), ", "))
}

package machine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// parseMemInfo reads /proc/meminfo into bytes by key. Lines without "kB" are
// counts, not sizes, and are left out.
func parseMemInfo(text string) map[string]int64 {
	sizes := map[string]int64{}
	for line := range strings.Lines(text) {
		key, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) != 2 || f[1] != "kB" {
			continue
		}
		kb, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || kb < 0 || kb > math.MaxInt64/1024 {
			continue
		}
		sizes[strings.TrimSpace(key)] = kb * 1024
	}
	return sizes
}

func (b *block) memory() {
	text, err := b.text("proc/meminfo")
	sizes := parseMemInfo(text)
	value := ""
	if n := sizes["MemTotal"]; n > 0 {
		value = strconv.FormatInt(n, 10)
	} else if err == nil {
		err = errors.New("/proc/meminfo has no MemTotal")
	}
	b.bed(MemoryTotalBytes, value, err)
	if n, ok := sizes["MemAvailable"]; ok {
		b.reading(MemoryAvailable, unitBytes, float64(n), 1)
	}
}

// system adds the operating system and what the machine is.
func (b *block) system(s Sources) {
	source, err := b.word("sys/devices/system/clocksource/clocksource0/current_clocksource")
	b.bed(ClockSource, source, err)
	if s.Go.OS != "" {
		b.bed(OSArch, s.Go.OS+"/"+s.Go.Arch, nil)
	} else {
		b.bed(OSArch, "", errors.New("the program does not say"))
	}
	kernel, err := b.word("proc/sys/kernel/osrelease")
	b.bed(OSKernel, kernel, err)
	release, err := b.release()
	b.bed(OSRelease, release, err)

	maker := known(b.word("sys/class/dmi/id/sys_vendor"))
	product := known(b.word("sys/class/dmi/id/product_name"))
	board := known(b.word("proc/device-tree/model"))
	name := cmp.Or(strings.TrimSpace(maker+" "+product), board)
	if strings.HasPrefix(product, maker) { // "Google", "Google Compute Engine"
		name = cmp.Or(product, name)
	}
	b.bed(MachineProduct, clean(name), errors.New("neither the firmware's tables nor a device tree say"))
	virtual, err := b.virtual(maker, product, kernel, source, name != "")
	b.bed(MachineVirtual, virtual, err)
	b.bed(MachineContainer, b.container(s.LookupEnv), nil)
	power, err := b.power()
	b.bed(MachinePower, power, err)
}

// release is the distribution's own name for itself.
func (b *block) release() (string, error) {
	text, err := b.text("etc/os-release")
	if err != nil {
		var again error
		if text, again = b.text("usr/lib/os-release"); again != nil {
			return "", err
		}
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return clean(strings.Trim(strings.TrimSpace(value), `"'`)), nil
		}
	}
	return "", errors.New("/etc/os-release has no PRETTY_NAME")
}

// known drops what firmware says where its maker filled in nothing.
func known(word string, err error) string {
	switch strings.ToLower(word) {
	case "none", "not specified", "default string", "unknown", "system manufacturer", "system product name",
		"to be filled by o.e.m.", "system version", "o.e.m.", "oem":
		return ""
	}
	if err != nil {
		return ""
	}
	return word
}

// hypervisors are signs of one in the firmware's tables, in lower case.
var hypervisors = []struct{ sign, name string }{
	{"vmware", "vmware"}, {"virtualbox", "virtualbox"}, {"innotek", "virtualbox"}, {"parallels", "parallels"},
	{"bhyve", "bhyve"}, {"apple virtualization", "apple"}, {"hvm domu", "xen"}, {"xen", "xen"},
	{"microsoft corporation virtual machine", "hyper-v"}, {"amazon ec2", "amazon"},
	{"google compute engine", "google"}, {"openstack", "openstack"}, {"kvm", "kvm"}, {"qemu", "qemu"}, {"bochs", "bochs"},
}

// virtual says which hypervisor the machine runs under, yes for one without a
// name, none where there is none. On x86 the processor's flag decides, since
// the firmware of a cloud's metal machines names the cloud too.
func (b *block) virtual(maker, product, kernel, clock string, firmware bool) (string, error) {
	name := ""
	switch text, _ := b.word("sys/hypervisor/type"); {
	case strings.Contains(strings.ToLower(kernel), "microsoft"):
		name = "wsl"
	case text != "":
		name = text
	}
	tables := strings.ToLower(maker + " " + product)
	for _, h := range hypervisors {
		if name == "" && strings.Contains(tables, h.sign) {
			name = h.name
		}
	}
	if text, err := b.word("proc/device-tree/hypervisor/compatible"); err == nil && name == "" {
		name = strings.TrimPrefix(text, "linux,")
	}
	if name == "" {
		name = map[string]string{"kvm-clock": "kvm", "xen": "xen", "hyperv_clocksource_tsc_page": "hyper-v"}[clock]
	}
	switch {
	case b.flags && b.hypervisor:
		return cmp.Or(name, present), nil
	case b.flags && name != "xen" && name != "wsl": // a Xen guest may hide the flag
		return none, nil
	case name != "":
		return name, nil
	case firmware:
		return none, nil
	}
	return "", errors.New("nothing here says whether there is a hypervisor")
}

// container names the kind of container, yes for an unknown one, none where
// no sign of one is found.
func (b *block) container(lookup func(string) (string, bool)) string {
	if lookup != nil {
		if _, ok := lookup("KUBERNETES_SERVICE_HOST"); ok { // its value is not used
			return "kubernetes"
		}
	}
	groups, _ := b.text("proc/self/cgroup")
	for _, c := range []struct{ sign, name string }{
		{"kubepods", "kubernetes"}, {"libpod", "podman"}, {"docker", "docker"}, {"lxc", "lxc"},
		{"containerd", "containerd"}, {"machine.slice", "systemd-nspawn"},
	} {
		// A name in the path of a whole slice or scope, as in
		// /docker/ID or /system.slice/docker-ID.scope; the daemon's own
		// docker.service is no container.
		for line := range strings.Lines(groups) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, c.sign) && !strings.HasSuffix(line, ".service") {
				return c.name
			}
		}
	}
	switch {
	case b.exists("run/.containerenv"):
		return "podman"
	case b.exists(".dockerenv"):
		return "docker"
	}
	if text, err := b.word("run/systemd/container"); err == nil {
		return text
	}
	return none
}

// power says what feeds the machine.
func (b *block) power() (string, error) {
	const folder = "sys/class/power_supply"
	source := ""
	for _, name := range b.list(folder) {
		file := func(f string) string {
			text, _ := b.text(folder + "/" + name + "/" + f)
			return text
		}
		switch {
		case file("scope") == "Device": // a mouse
		case file("type") == "Battery" && file("status") == "Discharging":
			return "battery", nil
		case file("type") == "Battery", file("type") == "Mains" && file("online") == "1":
			source = "mains"
		}
	}
	return source, errors.New("no power supply is listed")
}

// load adds how busy the machine is.
func (b *block) load() {
	if text, err := b.text("proc/loadavg"); err == nil {
		f := strings.Fields(text)
		for i, name := range []string{Load1, Load5} {
			if i >= len(f) {
				break
			}
			if v, err := strconv.ParseFloat(f[i], 64); err == nil && v >= 0 {
				b.reading(name, unitTasks, v, 1)
			}
		}
	}
	text, _ := b.text("proc/pressure/cpu")
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "some" {
			continue
		}
		percent, ok := strings.CutPrefix(f[1], "avg10=")
		if v, err := strconv.ParseFloat(percent, 64); ok && err == nil && v >= 0 {
			b.reading(CPUPressure, unitRatio, v/100, 1)
		}
	}
}

// temperatures adds the hottest sensor of each kind of chip, or of each
// thermal zone where no chip has sensors. A server has a sensor a core; the
// hottest is what throttles.
func (b *block) temperatures() {
	var chips hottest
	const hwmon = "sys/class/hwmon"
	for _, dir := range b.list(hwmon) {
		folder := hwmon + "/" + dir
		name, err := b.word(folder + "/name")
		if err != nil {
			continue
		}
		for _, file := range b.list(folder) {
			if strings.HasPrefix(file, "temp") && strings.HasSuffix(file, "_input") {
				chips.add(name, b.celsius(folder+"/"+file))
			}
		}
	}
	const zones = "sys/class/thermal"
	if len(chips.names) == 0 {
		for _, dir := range b.list(zones) {
			if !strings.HasPrefix(dir, "thermal_zone") {
				continue
			}
			if name, err := b.word(zones + "/" + dir + "/type"); err == nil {
				chips.add(name, b.celsius(zones+"/"+dir+"/temp"))
			}
		}
	}
	for i, name := range chips.names {
		b.reading(TemperaturePrefix+name, unitCelsius, chips.value[i], chips.n[i])
	}
}

// celsius reads a sensor; NaN if it gives nothing a computer survives.
func (b *block) celsius(name string) float64 {
	text, err := b.text(name)
	if err != nil {
		return math.NaN()
	}
	milli, err := strconv.ParseInt(text, 10, 32)
	if err != nil || milli < -60_000 || milli > 200_000 {
		return math.NaN()
	}
	return float64(milli) / 1e3
}

// hottest collects temperatures by chip, in the order the chips came.
type hottest struct {
	names []string
	value []float64
	n     []int
}

func (h *hottest) add(name string, v float64) {
	if math.IsNaN(v) {
		return
	}
	for i, other := range h.names {
		if other == name {
			h.value[i], h.n[i] = max(h.value[i], v), h.n[i]+1
			return
		}
	}
	h.names, h.value, h.n = append(h.names, name), append(h.value, v), append(h.n, 1)
}

// gpuFields are asked of a GPU, in this order.
var gpuFields = []struct{ name, role string }{
	{DriverVersion, results.Subject}, {CUDAVersion, results.Subject},
	{CuDNNVersion, results.Subject}, {NCCLVersion, results.Subject},
	{GPUName, results.Bed}, {GPUCount, results.Bed}, {GPUMemoryBytes, results.Bed},
	{GPUClockLimitHz, results.Bed}, {GPUMemoryClockLimit, results.Bed}, {GPUPowerLimitW, results.Bed},
	{GPUMIG, results.Bed}, {GPUECC, results.Bed}, {GPUPersistence, results.Bed},
}

// gpu adds what the GPU says. Without one, the kernel module still tells its
// version and the models: a run on the CPU beside them is what it is.
func (b *block) gpu(g GPU) {
	why := "no GPU is open"
	said := map[string]results.EnvironmentField{}
	var more []results.EnvironmentField
	if g != nil {
		why = "the GPU's library does not say"
		for _, f := range g.Fields() {
			f.Value, f.Why = clean(f.Value), clean(f.Why)
			if identifier.MatchString(f.Value) {
				f.Value, f.Why = "", "device identifiers are not recorded"
			}
			if _, again := said[f.Name]; again {
				continue
			}
			said[f.Name] = f
			more = append(more, f)
		}
	} else {
		b.module(said)
	}
	for _, known := range gpuFields {
		f := said[known.name]
		if f.Value == "" {
			f.Why = cmp.Or(f.Why, why)
		}
		b.add(known.name, known.role, f.Value, f.Why)
		delete(said, known.name)
	}
	for _, f := range more {
		if _, left := said[f.Name]; !left {
			continue
		}
		if f.Role != results.Subject {
			f.Role = results.Bed
		}
		b.add(f.Name, f.Role, f.Value, f.Why)
	}
}

// module reads what the NVIDIA kernel module shows under /proc. The same files
// hold UUIDs, which are left there.
func (b *block) module(said map[string]results.EnvironmentField) {
	const folder = "proc/driver/nvidia"
	text, err := b.text(folder + "/version")
	why := "no NVIDIA driver is loaded"
	if err != nil && b.exists(folder) {
		why = err.Error()
	}
	said[DriverVersion] = results.EnvironmentField{Value: moduleVersion(text), Why: why}
	models, count := map[string]int{}, 0
	for _, dir := range b.list(folder + "/gpus") {
		text, err := b.text(folder + "/gpus/" + dir + "/information")
		if err != nil {
			continue
		}
		count++
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, "Model:"); ok {
				models[clean(value)]++
			}
		}
	}
	if count > 0 {
		said[GPUCount] = results.EnvironmentField{Value: strconv.Itoa(count)}
		said[GPUName] = results.EnvironmentField{Value: tally(models)}
	}
	for name, f := range said {
		if f.Value != "" {
			f.Why = ""
			said[name] = f
		}
	}
}

// moduleVersion finds the version in the module's own line,
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug ...".
func moduleVersion(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	if !strings.HasPrefix(first, "NVRM version:") {
		return ""
	}
	for _, word := range strings.Fields(first) {
		if major, rest, ok := strings.Cut(word, "."); ok && digits(major) && digits(strings.ReplaceAll(rest, ".", "")) {
			return word
		}
	}
	return ""
}

// quota writes a number of CPUs.
func quota(cpus float64) string { return fmt.Sprintf("%.4g", cpus) }

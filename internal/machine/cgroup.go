package machine

import (
	"errors"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	root    string // the folder of the file system that is mounted
	point   string
	kind    string
	options []string // of the file system, where version 1 names its controllers
}

// parseMountInfo reads /proc/self/mountinfo. Lines that are not whole are
// passed over.
func parseMountInfo(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-") // optional fields stand before it
		if dash < 6 || len(f) < dash+4 {
			continue
		}
		mounts = append(mounts, mount{unescape(f[3]), unescape(f[4]), f[dash+1], strings.Split(f[dash+3], ",")})
	}
	return mounts
}

// unescape undoes the kernel's octal writing of spaces and backslashes.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// parseCgroups reads /proc/self/cgroup into the path by controller; version
// 2's is "".
func parseCgroups(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			paths[controller] = f[2]
		}
	}
	return paths
}

// folders are where a controller's limits of this process lie, from its own
// group up to the highest visible one: each of them limits it.
func folders(mounts []mount, paths map[string]string, controller string) (found []string, version int) {
	for _, m := range mounts {
		one := m.kind == "cgroup" && slices.Contains(m.options, controller)
		two := m.kind == "cgroup2"
		switch {
		case one:
			return climb(m, paths[controller]), 1
		case two && found == nil:
			found, version = climb(m, paths[""]), 2
		}
	}
	return found, version
}

// climb lists the folders from a group to the mount's point.
func climb(m mount, group string) []string {
	if strings.HasPrefix(group, "/..") { // above what this name space shows
		group = ""
	}
	group = path.Clean("/" + group)
	if m.root != "/" {
		// In a container without a name space of its own, the group is named
		// from the host's root and the mount begins somewhere below it.
		rest, ok := strings.CutPrefix(group, path.Clean(m.root))
		if !ok || rest != "" && rest[0] != '/' {
			rest = ""
		}
		group = path.Clean("/" + rest)
	}
	point := path.Clean("/" + m.point)
	list := []string{path.Join(point, group)[1:]}
	for group != "/" {
		group = path.Dir(group)
		list = append(list, path.Join(point, group)[1:])
	}
	return list
}

// cgroups adds the limits that control groups set, which a container's are.
func (b *block) cgroups() {
	text, err := b.text("proc/self/mountinfo")
	mounts := parseMountInfo(text)
	groups, _ := b.text("proc/self/cgroup")
	paths := parseCgroups(groups)
	if err == nil {
		err = errors.New("no control groups are mounted")
	}

	least, found := math.Inf(1), false
	list, version := folders(mounts, paths, "cpu")
	for _, folder := range list {
		found = true
		least = min(least, b.cpuQuota(folder, version))
	}
	b.bed(CgroupCPUs, limit(least, found, quota), err)

	least, found = math.Inf(1), false
	list, version = folders(mounts, paths, "memory")
	for _, folder := range list {
		found = true
		least = min(least, b.memoryLimit(folder, version))
	}
	b.bed(CgroupMemoryBytes, limit(least, found, func(v float64) string {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}), err)
}

// limit words the least of several limits: none if there is no finite one,
// nothing if nobody could be asked.
func limit(least float64, found bool, text func(float64) string) string {
	switch {
	case !found:
		return ""
	case math.IsInf(least, 1):
		return none
	}
	return text(least)
}

// cpuQuota is a group's own limit in CPUs, infinite without one.
func (b *block) cpuQuota(folder string, version int) float64 {
	var us, period string
	if version == 1 {
		us, _ = b.text(folder + "/cpu.cfs_quota_us")
		period, _ = b.text(folder + "/cpu.cfs_period_us")
	} else {
		text, _ := b.text(folder + "/cpu.max")
		us, period, _ = strings.Cut(text, " ")
	}
	q, err := strconv.ParseInt(us, 10, 64)
	p, again := strconv.ParseInt(period, 10, 64)
	if err != nil || again != nil || q <= 0 || p <= 0 { // "max", or -1
		return math.Inf(1)
	}
	return float64(q) / float64(p)
}

// memoryLimit is a group's own limit in bytes, infinite without one, which
// version 1 writes as the largest page-aligned number.
func (b *block) memoryLimit(folder string, version int) float64 {
	name := "/memory.max"
	if version == 1 {
		name = "/memory.limit_in_bytes"
	}
	text, _ := b.text(folder + name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n >= 1<<62 {
		return math.Inf(1)
	}
	return float64(n)
}

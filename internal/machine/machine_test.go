package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"github.com/tech-renaissance/trbench/results"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeGPU is a GPU whose library knows some things, and says some that it
// should not.
type fakeGPU struct{}

func (fakeGPU) Fields() []results.EnvironmentField {
	return []results.EnvironmentField{
		{Name: DriverVersion, Value: "580.65.06"},
		{Name: CUDAVersion, Value: "13.0"},
		{Name: NCCLVersion, Why: "libnccl.so.2 is not installed"},
		{Name: GPUName, Value: "NVIDIA H200"},
		{Name: GPUName, Value: "said twice"},
		{Name: GPUCount, Value: "2"},
		{Name: GPUMIG, Value: on},
		{Name: GPUPersistence, Value: off},
		{Name: "cublas.version", Value: "13.0.2", Role: results.Subject},
		{Name: "gpu.id", Value: "GPU-5f8a3e9d-1c2b-4a5d-8e7f-000000000001"},
	}
}

func (fakeGPU) Readings() []results.Reading {
	return []results.Reading{
		{Name: "gpu.temperature", Unit: unitCelsius, Value: 35, N: 2},
		{Name: "gpu.power_w", Unit: "W", Value: math.NaN(), N: 1},
	}
}

// recorded returns the sources of a machine in testdata. Its file "environ"
// holds the variables; one named "gpu" says that there is one.
func recorded(t testing.TB, file string) Sources {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root := fstest.MapFS{}
	for _, f := range archive.Files {
		root[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o444}
	}
	environ := map[string]string{}
	for line := range strings.Lines(string(root["environ"].Data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		environ[name] = value
	}
	s := Sources{
		Root:      root,
		LookupEnv: func(name string) (string, bool) { v, ok := environ[name]; return v, ok },
		Program:   results.Program{Version: "v1.2.3", Revision: "0123abcd", Dirty: new(true), Go: "go1.26.1"},
		Go: Toolchain{OS: "linux", Arch: "amd64", MaxProcs: 2,
			Settings: map[string]string{"GOAMD64": "v3", "CGO_ENABLED": "0"}},
	}
	if f, ok := root["goarch"]; ok {
		s.Go.Arch, s.Go.Settings = strings.TrimSpace(string(f.Data)), map[string]string{"GOARM64": "v8.0", "CGO_ENABLED": "1"}
	}
	if _, ok := root["gpu"]; ok {
		s.GPU = fakeGPU{}
	}
	return s
}

func machines(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v, %v", files, err)
	}
	return files
}

func show(env results.Environment) string {
	var out bytes.Buffer
	for _, f := range env.Fields {
		fmt.Fprintf(&out, "%-7s %s = %s", f.Role, f.Name, f.Value)
		if f.Why != "" {
			fmt.Fprintf(&out, "  # %s", f.Why)
		}
		out.WriteByte('\n')
	}
	for _, r := range env.Readings {
		fmt.Fprintf(&out, "reading %s = %v %s, n=%d\n", r.Name, r.Value, r.Unit, r.N)
	}
	for _, w := range Doubts(env) {
		fmt.Fprintf(&out, "doubt   %s: %s\n", w.Code, w.Text)
	}
	return out.String()
}

func TestReadMachines(t *testing.T) {
	for _, file := range machines(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			got := show(Read(context.Background(), recorded(t, file)))
			golden := strings.TrimSuffix(file, ".txtar") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("differs from %s; run with -update and look at the change.\ngot:\n%s", golden, got)
			}
		})
	}
}

// Every machine has every field of this package, once, and a reason beside
// every empty value.
func TestFieldsComplete(t *testing.T) {
	var first []string
	for _, file := range machines(t) {
		s := recorded(t, file)
		s.GPU, s.LookupEnv = nil, nil
		var got []string
		for _, f := range Read(context.Background(), s).Fields {
			got = append(got, f.Name)
			if (f.Value == "") == (f.Why == "") {
				t.Errorf("%s: %s has value %q and reason %q", file, f.Name, f.Value, f.Why)
			}
			if f.Role != results.Subject && f.Role != results.Bed {
				t.Errorf("%s: %s has role %q", file, f.Name, f.Role)
			}
		}
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Errorf("%s has fields %v, another machine %v", file, got, first)
		}
	}
	sorted := slices.Clone(first)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(first) {
		t.Errorf("a field occurs twice in %v", first)
	}
}

func TestNothingPrivate(t *testing.T) {
	for _, file := range machines(t) {
		text, err := json.Marshal(Read(context.Background(), recorded(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, private := range []string{
			"mallory", "hunter2", "rack7", "S123456X7", "3cecef", "c0ffee", "nvapi", "10.20.30", "10.0.0.1",
			"8932f937", "5f8a3e9d", "sk0123", "user-1000", "a1d10aa0", "/home",
		} {
			if strings.Contains(string(text), private) {
				t.Errorf("%s: the environment contains %q", file, private)
			}
		}
	}
}

// Nobody is asked for a variable outside the list.
func TestVariablesAsked(t *testing.T) {
	s := recorded(t, filepath.Join("testdata", "server-2socket.txtar"))
	s.LookupEnv = func(name string) (string, bool) {
		if !slices.Contains(variables, name) && name != "KUBERNETES_SERVICE_HOST" {
			t.Errorf("asked for %s", name)
		}
		return "", false
	}
	Read(context.Background(), s)
	if !slices.IsSorted(variables) {
		t.Error("the list of variables is not sorted")
	}
}

func TestReadNothing(t *testing.T) {
	env := Read(context.Background(), Sources{})
	for _, f := range env.Fields {
		if f.Value == "" && f.Why == "" {
			t.Errorf("%s has neither value nor reason", f.Name)
		}
	}
	if len(env.Readings) != 0 {
		t.Errorf("there are readings: %v", env.Readings)
	}
	if w := Doubts(results.Environment{}); len(w) != 0 {
		t.Errorf("doubts about nothing: %v", w)
	}
}

func TestReadCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	env := Read(ctx, recorded(t, filepath.Join("testdata", "vm-2core.txtar")))
	f, _ := env.Field(CPUModel)
	if f.Value != "" || !strings.Contains(f.Why, "canceled") {
		t.Errorf("cpu.model = %+v", f)
	}
	if f, _ := env.Field(ProgramRevision); f.Value == "" {
		t.Error("the program needs no reading and has no revision")
	}
}

// broken fails in the ways that files of a kernel do.
type broken struct {
	fstest.MapFS
	errs map[string]error
}

func (b broken) Open(name string) (fs.File, error) {
	if err := b.errs[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/somewhere/else/" + name, Err: err}
	}
	return b.MapFS.Open(name)
}

func TestReadBroken(t *testing.T) {
	s := Sources{Root: broken{
		MapFS: fstest.MapFS{
			"proc/cpuinfo":                             {Data: []byte("\n\nprocessor : 0\n\nprocessor : 1\nflags: fpu\n")},
			"proc/meminfo":                             {Data: []byte("MemTotal: -5 kB\nMemAvailable: 9223372036854775807 kB\n")},
			"proc/loadavg":                             {Data: []byte("NaN -1")},
			"sys/devices/system/node/online":           {Data: []byte("3-1")},
			"sys/devices/system/cpu/smt/active":        {Data: []byte("maybe")},
			"sys/devices/system/cpu/cpufreq/boost":     {Data: []byte("")},
			"proc/driver/nvidia/version":               {Data: []byte("something else 1.2.3")},
			"etc/os-release":                           {Data: []byte("PRETTY_NAME=\"Two\x1b[31m  Words\xff\"")},
			"proc/self/status":                         {Data: []byte("Name: x\n")},
			"proc/self/mountinfo":                      {Data: []byte("- - -\n1 2 3 / / rw -\n")},
			"proc/sys/kernel/osrelease/not-a-file":     {},
			"sys/class/dmi/id/sys_vendor":              {Data: []byte("To Be Filled By O.E.M.")},
			"sys/class/thermal/thermal_zone0/type":     {Data: []byte("x")},
			"sys/class/thermal/thermal_zone0/temp":     {Data: []byte("999999")},
			"sys/devices/system/cpu/online":            {Data: []byte("0-99999999")},
			"sys/devices/system/cpu/cpufreq/policy0/x": {},
		},
		errs: map[string]error{
			"sys/devices/system/clocksource/clocksource0/current_clocksource": fs.ErrPermission,
			"sys/class/dmi/id/product_name":                                   fmt.Errorf("no such device"),
		},
	}}
	env := Read(context.Background(), s)
	for _, c := range []struct{ name, value, why string }{
		{CPUModel, "", "/proc/cpuinfo names no model"},
		{CPUThreads, "2", ""},
		{CPUSMT, "", "/sys/devices/system/cpu/smt/active holds neither 0 nor 1"},
		{NUMANodes, "", `/sys/devices/system/node/online: "3-1" is not a list of numbers`},
		{MemoryTotalBytes, "", "/proc/meminfo has no MemTotal"},
		{ClockSource, "", "/sys/devices/system/clocksource/clocksource0/current_clocksource may not be read"},
		{OSRelease, "Two [31m Words", ""},
		{CgroupCPUs, "", "no control groups are mounted"},
		{MachineProduct, "", "neither the firmware's tables nor a device tree say"},
		{MachineVirtual, none, ""},
		{CPUUsable, "", "/proc/self/status lists no CPUs"},
	} {
		f, ok := env.Field(c.name)
		if !ok || f.Value != c.value || f.Why != c.why {
			t.Errorf("%s = %q # %q, want %q # %q", c.name, f.Value, f.Why, c.value, c.why)
		}
	}
	for _, f := range env.Fields {
		if f.Value == "" && f.Why == "" || strings.Contains(f.Why, "somewhere") {
			t.Errorf("%s = %q # %q", f.Name, f.Value, f.Why)
		}
	}
	if len(env.Readings) != 0 {
		t.Errorf("readings %v", env.Readings)
	}
}

// This machine, whatever it is, is read without a gap.
func TestReadHere(t *testing.T) {
	env := Read(context.Background(), Local(results.Program{Version: "test"}))
	for _, f := range env.Fields {
		if (f.Value == "") == (f.Why == "") && f.Value != hidden {
			t.Errorf("%s = %q # %q", f.Name, f.Value, f.Why)
		}
	}
	host, err := os.Hostname()
	if err != nil || len(host) < 6 {
		return
	}
	for _, f := range env.Fields {
		if strings.Contains(f.Value, host) {
			t.Errorf("%s contains the host's name", f.Name)
		}
	}
}

func TestVirtual(t *testing.T) {
	x86, guest := "processor : 0\nflags : fpu tsc\n", "processor : 0\nflags : fpu hypervisor tsc\n"
	arm := "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n"
	for name, c := range map[string]struct {
		cpuinfo string
		files   map[string]string
		want    string
	}{
		"metal x86":               {x86, nil, none},
		"flag alone":              {guest, nil, present},
		"metal of a cloud":        {x86, map[string]string{"sys/class/dmi/id/sys_vendor": "Amazon EC2", "sys/class/dmi/id/product_name": "m5.metal"}, none},
		"virtual of a cloud":      {guest, map[string]string{"sys/class/dmi/id/sys_vendor": "Amazon EC2", "sys/class/dmi/id/product_name": "m5.large"}, "amazon"},
		"hyper-v":                 {guest, map[string]string{"sys/class/dmi/id/sys_vendor": "Microsoft Corporation", "sys/class/dmi/id/product_name": "Virtual Machine"}, "hyper-v"},
		"laptop of the same firm": {x86, map[string]string{"sys/class/dmi/id/sys_vendor": "Microsoft Corporation", "sys/class/dmi/id/product_name": "Surface"}, none},
		"clock source":            {guest, map[string]string{"sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock"}, "kvm"},
		"xen without flag":        {x86, map[string]string{"sys/hypervisor/type": "xen"}, "xen"},
		"wsl":                     {guest, map[string]string{"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, "wsl"},
		"arm unknown":             {arm, nil, ""},
		"arm board":               {arm, map[string]string{"proc/device-tree/model": "A Board"}, none},
		"arm guest":               {arm, map[string]string{"proc/device-tree/model": "linux,dummy-virt", "proc/device-tree/hypervisor/compatible": "linux,kvm"}, "kvm"},
		"arm qemu":                {arm, map[string]string{"sys/class/dmi/id/sys_vendor": "QEMU", "sys/class/dmi/id/product_name": "QEMU Virtual Machine"}, "qemu"},
	} {
		root := fstest.MapFS{"proc/cpuinfo": {Data: []byte(c.cpuinfo)}}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
		if f, _ := Read(context.Background(), Sources{Root: root}).Field(MachineVirtual); f.Value != c.want {
			t.Errorf("%s: %q, want %q", name, f.Value, c.want)
		}
	}
}

func TestContainer(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"none":             {"proc/self/cgroup", "0::/system.slice/docker.service", none},
		"docker, v1":       {"proc/self/cgroup", "4:memory:/docker/0123456789ab\n", "docker"},
		"docker, systemd":  {"proc/self/cgroup", "0::/system.slice/docker-0123456789ab.scope", "docker"},
		"pod":              {"proc/self/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-01.scope", "kubernetes"},
		"podman":           {"run/.containerenv", "engine=podman", "podman"},
		"docker by file":   {".dockerenv", "", "docker"},
		"systemd's notice": {"run/systemd/container", "systemd-nspawn", "systemd-nspawn"},
	} {
		root := fstest.MapFS{c.file: {Data: []byte(c.text)}}
		if f, _ := Read(context.Background(), Sources{Root: root}).Field(MachineContainer); f.Value != c.want {
			t.Errorf("%s: %q, want %q", name, f.Value, c.want)
		}
	}
}

func TestCgroupLimits(t *testing.T) {
	const (
		v2      = "30 1 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
		v1      = "31 30 0:28 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
		escaped = "30 1 0:27 / /sys/fs/c\\040group rw - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		mounts, groups string
		files          map[string]string
		want           string
	}{
		"the least of the path": {v2, "0::/a/b/c", map[string]string{
			"sys/fs/cgroup/a/cpu.max": "400000 100000", "sys/fs/cgroup/a/b/cpu.max": "50000 100000", "sys/fs/cgroup/a/b/c/cpu.max": "max 100000"}, "0.5"},
		"root group":         {v2, "0::/", nil, none},
		"outside":            {v2, "0::/../../other", map[string]string{"sys/fs/cgroup/other/cpu.max": "1 100000", "sys/fs/cgroup/cpu.max": "300000 100000"}, "3"},
		"v1 below its mount": {v1 + v2, "4:cpu,cpuacct:/docker/ab\n0::/", map[string]string{"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}, "2.5"},
		"v1 of a neighbour":  {v1, "4:cpu,cpuacct:/docker/abc", nil, none},
		"space in the mount": {escaped, "0::/a", map[string]string{"sys/fs/c group/a/cpu.max": "100000 100000"}, "1"},
		"zero period":        {v2, "0::/", map[string]string{"sys/fs/cgroup/cpu.max": "1 0"}, none},
	} {
		root := fstest.MapFS{
			"proc/self/mountinfo": {Data: []byte(c.mounts)}, "proc/self/cgroup": {Data: []byte(c.groups)},
		}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
		if f, _ := Read(context.Background(), Sources{Root: root}).Field(CgroupCPUs); f.Value != c.want {
			t.Errorf("%s: %q, want %q", name, f.Value, c.want)
		}
	}
}

func TestVariableValues(t *testing.T) {
	for value, want := range map[string]string{
		"":                      "(empty)",
		"1":                     "1",
		":4096:8":               ":4096:8",
		"Ring,Tree":             "Ring,Tree",
		"compute,utility":       "compute,utility",
		"0,1":                   "0,1",
		"^lo,docker":            "^lo,docker",
		"GPU-8":                 hidden,
		"MIG-8932f937":          hidden,
		"/opt/x":                hidden,
		"~/x":                   hidden,
		"me@host":               hidden,
		"10.1.2.3":              hidden,
		strings.Repeat("a", 24): hidden,
		"a\nb":                  hidden,
	} {
		got, why := setting(value)
		if got != want || (got == hidden) != (why != "") {
			t.Errorf("%q is shown as %q # %q, want %q", value, got, why, want)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8-11": 8, " 0,2 \n": 2, "": -1, "a": -1, "2-1": -1, "1-": -1, "0-99999999": -1} {
		n, err := parseCPUList(text)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q has %d, want %d", text, n, want)
		}
	}
}

func TestModel(t *testing.T) {
	for text, want := range map[string]string{
		"processor : 0\nmodel name : A  B":                            "A B",
		"processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c":     "Arm Neoverse-N1",
		"processor : 0\nCPU implementer : 0x41\nCPU part : 0xfff":     "Arm part 0xfff",
		"processor : 0\nCPU implementer : 0xc0\nCPU part : 0xac3":     "Ampere part 0xac3",
		"processor : 0\nCPU implementer : 0x99\nCPU part : 0x1":       "Arm implementer 0x99 part 0x1",
		"processor : 0\ncpu : POWER9 (raw)":                           "POWER9 (raw)",
		"processor : 0\ncpu : X\n\nprocessor : 1\ncpu : Y\n\nModel:z": "1 x X, 1 x Y",
		"Serial : 1": "",
	} {
		if got := tally(parseCPUInfo(text).models); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func FuzzCPUInfo(f *testing.F) {
	for _, file := range machines(f) {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			if part.Name == "proc/cpuinfo" {
				f.Add(string(part.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		info := parseCPUInfo(text)
		if info.cores > info.processors || info.sockets > info.cores || len(info.hz) > info.processors {
			t.Errorf("impossible: %+v", info)
		}
		if m := tally(info.models); clean(m) != m {
			t.Errorf("the model %q is not clean", m)
		}
	})
}

func FuzzMemInfo(f *testing.F) {
	f.Add("MemTotal: 24683620 kB\nHugePages_Total: 0\n")
	f.Add("MemTotal: 99999999999999999999 kB")
	f.Fuzz(func(t *testing.T, text string) {
		for key, n := range parseMemInfo(text) {
			if n < 0 || strings.Contains(key, ":") {
				t.Errorf("%q is %d", key, n)
			}
		}
	})
}

func FuzzCgroups(f *testing.F) {
	f.Add("31 30 0:28 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n", "4:cpu:/docker/ab\n0::/")
	f.Add("30 1 0:27 / /sys/fs/c\\040group rw shared:1 - cgroup2 cgroup2 rw\n", "0::/../x")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		list, _ := folders(parseMountInfo(mounts), parseCgroups(groups), "cpu")
		for _, folder := range list {
			if strings.HasPrefix(folder, "/") || slices.Contains(strings.Split(folder, "/"), "..") {
				t.Errorf("folder %q", folder)
			}
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x00b \xff\u202e")
	f.Add(strings.Repeat("\u00e4", 300))
	f.Fuzz(func(t *testing.T, s string) {
		c := clean(s)
		if len(c) > maxValue || clean(c) != c || strings.ContainsAny(c, "\n\r\t\x00\x1b") {
			t.Errorf("%q became %q", s, c)
		}
	})
}

func TestGPUFields(t *testing.T) {
	env := Read(context.Background(), Sources{GPU: fakeGPU{}})
	roles := map[string]string{}
	for _, f := range env.Fields {
		if _, again := roles[f.Name]; again {
			t.Errorf("%s occurs twice", f.Name)
		}
		roles[f.Name] = f.Role
	}
	want := map[string]string{
		DriverVersion: results.Subject, "cublas.version": results.Subject, GPUName: results.Bed, "gpu.id": results.Bed,
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if roles[name] != want[name] {
			t.Errorf("%s has role %q, want %q", name, roles[name], want[name])
		}
	}
	if f, _ := env.Field(GPUName); f.Value != "NVIDIA H200" {
		t.Errorf("gpu.name = %q", f.Value)
	}
	if f, _ := env.Field(CuDNNVersion); f.Why != "the GPU's library does not say" {
		t.Errorf("cudnn.version = %+v", f)
	}
	if len(env.Readings) != 1 {
		t.Errorf("readings %v: NaN is to be left out", env.Readings)
	}
}

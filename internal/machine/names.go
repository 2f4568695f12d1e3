package machine

// Names of the fields of the subject: what a comparison may exist for.
const (
	ProgramVersion  = "program.version"
	ProgramRevision = "program.revision"
	ProgramDirty    = "program.dirty" // true, false
	GoVersion       = "go.version"
	GoArchLevel     = "go.arch_level" // GOAMD64 and its like: v1, v3
	GoExperiment    = "go.experiment" // none, or a list
	GoTags          = "go.tags"       // none, or a list
	GoCgo           = "go.cgo"        // on, off
	GoRace          = "go.race"       // on, off

	DriverVersion = "driver.version" // of the NVIDIA kernel module
	CUDAVersion   = "cuda.version"   // that the driver offers
	CuDNNVersion  = "cudnn.version"
	NCCLVersion   = "nccl.version"
)

// Names of the fields of the bed: what must be the same on both sides. On and
// off are the words for whatever can be switched, here and in a [GPU].
const (
	GPUName             = "gpu.name"
	GPUCount            = "gpu.count"
	GPUMemoryBytes      = "gpu.memory_bytes"
	GPUClockLimitHz     = "gpu.clock_limit_hz"
	GPUMemoryClockLimit = "gpu.memory_clock_limit_hz"
	GPUPowerLimitW      = "gpu.power_limit_w"
	GPUMIG              = "gpu.mig"         // on, off
	GPUECC              = "gpu.ecc"         // on, off
	GPUPersistence      = "gpu.persistence" // on, off

	CPUModel            = "cpu.model"
	CPUSockets          = "cpu.sockets"
	CPUCores            = "cpu.cores"    // physical
	CPUThreads          = "cpu.threads"  // logical, online
	CPUUsable           = "cpu.usable"   // logical, that this process may run on
	CPUSMT              = "cpu.smt"      // on, off
	CPUGovernor         = "cpu.governor" // several are listed with commas
	CPUFrequencyDriver  = "cpu.driver"   // intel_pstate, acpi-cpufreq
	CPUEnergyPreference = "cpu.energy"   // the hint beside the governor
	CPULimitHz          = "cpu.limit_hz" // the highest clock that policy allows
	CPUBoost            = "cpu.boost"    // on, off
	NUMANodes           = "numa.nodes"   //
	MemoryTotalBytes    = "memory.total_bytes"
	ClockSource         = "clock.source"      // tsc, kvm-clock, hpet
	OSArch              = "os.arch"           // linux/amd64
	OSKernel            = "os.kernel"         // the release alone
	OSRelease           = "os.release"        // the distribution
	MachineProduct      = "machine.product"   // maker and model
	MachineVirtual      = "machine.virtual"   // none, kvm, vmware, ..., yes
	MachineContainer    = "machine.container" // none, docker, ..., yes
	MachinePower        = "machine.power"     // mains, battery
	CgroupCPUs          = "cgroup.cpus"       // none, or the quota in CPUs: 1.5
	CgroupMemoryBytes   = "cgroup.memory_bytes"
	GoMaxProcs          = "go.maxprocs"

	// EnvPrefix stands before the name of an environment variable. Only
	// variables that are set have a field.
	EnvPrefix = "env."
)

// BedFields are the names of all fields of the bed, but for those that only a GPU's
// reader knows, and variables, which begin with [EnvPrefix].
func BedFields() []string {
	return []string{
		GPUName, GPUCount, GPUMemoryBytes, GPUClockLimitHz, GPUMemoryClockLimit, GPUPowerLimitW, GPUMIG, GPUECC, GPUPersistence,
		CPUModel, CPUSockets, CPUCores, CPUThreads, CPUUsable, CPUSMT, CPUGovernor, CPUFrequencyDriver, CPUEnergyPreference, CPULimitHz, CPUBoost,
		NUMANodes, MemoryTotalBytes, ClockSource, OSArch, OSKernel, OSRelease, MachineProduct, MachineVirtual, MachineContainer, MachinePower,
		CgroupCPUs, CgroupMemoryBytes, GoMaxProcs,
	}
}

// Names of the readings.
const (
	Load1             = "load1"                     // tasks
	Load5             = "load5"                     // tasks
	CPUPressure       = "pressure.cpu"              // ratio of the last 10 s in which a task waited for a CPU
	CPUFrequencyHz    = "cpu.frequency_hz"          // median over CPUs
	CPUFrequencyMinHz = "cpu.frequency_min_hz"      //
	CPUFrequencyMaxHz = "cpu.frequency_max_hz"      //
	CPUThrottles      = "cpu.throttles"             // times since the system started, over CPUs and packages
	MemoryAvailable   = "memory.available_bytes"    //
	TemperaturePrefix = "temperature."              // then the chip; its hottest sensor, celsius
	GPUTemperature    = TemperaturePrefix + "gpu"   // the hottest GPU
	GPUClockHz        = "gpu.sm_clock_hz"           // median over GPUs
	GPUHeldPrefix     = "gpu.held."                 // then NVML's reason: GPUs whose clocks it holds down
	callPrefix        = "call."                     // then the call; ns each
	ClockReadNs       = "clock.read_ns"             // median
	ClockReadP99Ns    = "clock.read_p99_ns"         //
	ClockStepNs       = "clock.step_ns"             // the smallest step seen
	ClockBackwards    = "clock.backwards"           // steps back seen, on one thread
	SleepOvershootNs  = "sleep.overshoot_ns"        // median, of 1 ms
	StopWorldNs       = "pause.stop_world_ns"       // median: stop all goroutines and go on
	PauseLongestNs    = "pause.longest_ns"          // the longest gap in a loop that only reads the clock
	PauseShare        = "pause.share"               // ratio of that loop's time spent in gaps
	CallEmptyNs       = callPrefix + "empty_ns"     // median: a Go call through an interface
	CallEmptyP99Ns    = callPrefix + "empty_p99_ns" //
)

// Units of readings.
const (
	unitNs      = "ns"
	unitHz      = "Hz"
	unitBytes   = "bytes"
	unitCelsius = "celsius"
	unitRatio   = "ratio"
	unitTasks   = "tasks"
	unitCount   = "count"
)

const (
	on      = "on"
	off     = "off"
	none    = "none"
	present = "yes"
)

// Meaning says what a reading of [Calibrate] is, in a few words; empty for others.
func Meaning(reading string) string {
	return map[string]string{
		ClockReadNs:      "reading the clock, median",
		ClockReadP99Ns:   "reading the clock, 99th percentile",
		ClockStepNs:      "the smallest step that the clock made",
		ClockBackwards:   "steps back that the clock made",
		PauseLongestNs:   "the longest gap in a loop that only reads the clock",
		PauseShare:       "that loop's time spent in gaps: kept from running",
		SleepOvershootNs: "by how much a sleep of 1 ms is too long, median",
		StopWorldNs:      "stopping all goroutines and going on, median",
		CallEmptyNs:      "a Go call through an interface, median",
		CallEmptyP99Ns:   "a Go call through an interface, 99th percentile",
	}[reading]
}

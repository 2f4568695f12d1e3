package machine

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// variables are the environment variables that are looked at: those that
// change what the libraries and the runtime do. It is a list of names, not of
// beginnings, since NVIDIA_ and GO also begin the names of secrets.
var variables = []string{
	"CUBLASLT_LOG_LEVEL", "CUBLAS_LOGINFO_DBG", "CUBLAS_WORKSPACE_CONFIG",
	"CUDA_AUTO_BOOST", "CUDA_BINARY_LOADER_THREAD_COUNT", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE",
	"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_ORDER",
	"CUDA_DEVICE_WAITS_ON_EXCEPTION", "CUDA_DISABLE_JIT", "CUDA_DISABLE_PERF_BOOST", "CUDA_DISABLE_PTX_JIT",
	"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "CUDA_FORCE_JIT",
	"CUDA_FORCE_PTX_JIT", "CUDA_GRAPHS_USE_NODE_PRIORITY", "CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING",
	"CUDA_LOG_FILE", "CUDA_MANAGED_FORCE_DEVICE_ALLOC", "CUDA_MODULE_DATA_LOADING", "CUDA_MODULE_LOADING",
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
	"CUDA_MPS_PIPE_DIRECTORY", "CUDA_SCALE_LAUNCH_QUEUES", "CUDA_VISIBLE_DEVICES",
	"CUDNN_LOGDEST_DBG", "CUDNN_LOGERR_DBG", "CUDNN_LOGINFO_DBG", "CUDNN_LOGLEVEL_DBG", "CUDNN_LOGWARN_DBG",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
	"LD_BIND_NOW", "LD_LIBRARY_PATH", "LD_PRELOAD",
	"NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CGA_CLUSTER_SIZE", "NCCL_COLLNET_ENABLE", "NCCL_COMM_BLOCKING",
	"NCCL_CONF_FILE", "NCCL_CROSS_NIC", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
	"NCCL_GRAPH_FILE", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER", "NCCL_IB_DISABLE", "NCCL_IB_HCA",
	"NCCL_IGNORE_CPU_AFFINITY", "NCCL_LAUNCH_MODE", "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LOCAL_REGISTER",
	"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
	"NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
	"NCCL_PROFILER_PLUGIN", "NCCL_PROTO", "NCCL_PXN_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME",
	"NCCL_TOPO_FILE", "NCCL_TUNER_PLUGIN",
	"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "NVTX_INJECTION64_PATH",
	"OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND",
}

// hidden is the value of a variable that is set to something not recorded.
const hidden = "(set)"

var (
	// plain is what a setting looks like. A slash makes a path, @ an address.
	plain = regexp.MustCompile(`^[A-Za-z0-9_.,:;=^+%| -]{1,80}$`)
	// device finds a device named by (the beginning of) its UUID.
	device = regexp.MustCompile(`(?i)\b(GPU|MIG)-`)
	// identifier finds a UUID.
	identifier = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-`)
	// secret finds a long run of mixed letters and digits, and an IPv4 address.
	secret = regexp.MustCompile(`[A-Za-z0-9]{24}|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+`)
)

// variables adds those that are set.
func (b *block) variables(lookup func(string) (string, bool)) {
	if lookup == nil {
		return
	}
	names := slices.Sorted(slices.Values(variables))
	for _, name := range names {
		value, ok := lookup(name)
		if !ok {
			continue
		}
		value, why := setting(strings.TrimSpace(value))
		b.add(EnvPrefix+name, results.Bed, value, why)
	}
}

// setting returns what is recorded of a variable's value, and why if that is
// not the value itself.
func setting(value string) (shown, why string) {
	switch {
	case value == "":
		return "(empty)", ""
	case device.MatchString(value) || identifier.MatchString(value):
		return hidden, "device identifiers are not recorded"
	case strings.ContainsAny(value, `/\~`):
		return hidden, "paths are not recorded"
	case !plain.MatchString(value) || secret.MatchString(value):
		return hidden, "the value does not look like a setting"
	}
	return value, ""
}

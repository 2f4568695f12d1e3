// What a launch costs from C++: the floor under trbench's own figures.
//
// As a program it prints one JSON object a line with the names that package
// internal/device/cuda/calibrate gives its readings:
//
//	nvcc -O2 -std=c++17 -gencode arch=compute_80,code=compute_80 -o launch_floor launch_floor.cu -lcuda
//	./launch_floor
//
// As a library it offers the loops that Go runs in alternating blocks with its
// own, in one process, on the same function, stream and exec (TestGPUFloor):
//
//	nvcc -O2 -std=c++17 -x c++ -shared -Xcompiler -fPIC -cudart none -DFLOOR_LIBRARY -o liblaunch_floor.so launch_floor.cu -lcuda
//	TRBENCH_GPU=1 TRBENCH_FLOOR=liblaunch_floor.so ./calibrate.test -test.run TestGPUFloor -test.v
//
// Rules that both keep: a batch is short enough that the stream's queue, which
// holds about a thousand launches, never fills; it is drained with the clock
// stopped; figures are medians over batches.
#include <cuda.h>
#include <string.h>
#include <time.h>

static long long now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// The loops return the nanoseconds spent in submissions, or the negative code of
// the call that failed.
extern "C" {

// floor_nop makes a call that does nothing.
long long floor_nop(int n) {
    int v;
    const long long begin = now();
    for (int i = 0; i < n; i++) {
        const CUresult r = cuDriverGetVersion(&v);
        if (r != CUDA_SUCCESS) return -(long long)r;
    }
    return now() - begin;
}

// floor_kernel launches one block of one thread, bursts times burst times.
long long floor_kernel(CUfunction f, CUstream s, void **params, int bursts, int burst) {
    long long spent = 0;
    for (int b = 0; b < bursts; b++) {
        const long long begin = now();
        for (int i = 0; i < burst; i++) {
            const CUresult r = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr);
            if (r != CUDA_SUCCESS) return -(long long)r;
        }
        spent += now() - begin;
        const CUresult r = cuStreamSynchronize(s);
        if (r != CUDA_SUCCESS) return -(long long)r;
    }
    return spent;
}

// floor_graph launches an exec likewise.
long long floor_graph(CUgraphExec x, CUstream s, int bursts, int burst) {
    long long spent = 0;
    for (int b = 0; b < bursts; b++) {
        const long long begin = now();
        for (int i = 0; i < burst; i++) {
            const CUresult r = cuGraphLaunch(x, s);
            if (r != CUDA_SUCCESS) return -(long long)r;
        }
        spent += now() - begin;
        const CUresult r = cuStreamSynchronize(s);
        if (r != CUDA_SUCCESS) return -(long long)r;
    }
    return spent;
}

// floor_fill is what a host does that prepares a batch: it writes so many bytes.
long long floor_fill(void *to, size_t bytes) {
    const long long begin = now();
    memset(to, (int)begin, bytes);
    return now() - begin;
}

// floor_graph_fed launches an exec once behind each filling, which is not timed.
long long floor_graph_fed(CUgraphExec x, CUstream s, void *to, size_t bytes, int bursts, int) {
    long long spent = 0;
    for (int b = 0; b < bursts; b++) {
        floor_fill(to, bytes);
        const long long begin = now();
        CUresult r = cuGraphLaunch(x, s);
        spent += now() - begin;
        if (r == CUDA_SUCCESS) r = cuStreamSynchronize(s);
        if (r != CUDA_SUCCESS) return -(long long)r;
    }
    return spent;
}
}

#ifndef FLOOR_LIBRARY
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <string>
#include <vector>

__global__ void empty() {}

#define CHECK(call)                                                          \
    do {                                                                     \
        const int code = (int)(call);                                        \
        if (code != 0) {                                                     \
            std::fprintf(stderr, "launch_floor: %s: error %d\n", #call, code); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const size_t h = v.size() / 2;
    return v.size() % 2 ? v[h] : (v[h - 1] + v[h]) / 2;
}

static void print(const std::string &name, const char *unit, double v, size_t n) {
    std::printf("{\"name\":\"%s\",\"unit\":\"%s\",\"value\":%.6g,\"n\":%zu}\n", name.c_str(), unit, v, n);
}

// sample calls f times and once more before, which does not count.
template <class F> static double sample(const std::string &name, int times, F f) {
    std::vector<double> all;
    f();
    for (int i = 0; i < times; i++) all.push_back(f());
    const double m = median(all);
    if (!name.empty()) print(name, "ns", m, all.size());
    return m;
}

static double positive(long long ns, const char *what) {
    if (ns < 0) {
        std::fprintf(stderr, "launch_floor: %s: error %lld\n", what, -ns);
        std::exit(1);
    }
    return (double)ns;
}

static void fit(const std::string &name, const std::vector<int> &x, const std::vector<double> &y) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0, n = (double)x.size();
    for (size_t i = 0; i < x.size(); i++) sx += x[i], sy += y[i], sxx += (double)x[i] * x[i], sxy += x[i] * y[i];
    const double node = (n * sxy - sx * sy) / (n * sxx - sx * sx), base = (sy - node * sx) / n;
    double rest = 0, all = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const double e = y[i] - base - node * x[i], d = y[i] - sy / n;
        rest += e * e, all += d * d;
    }
    print(name + "_base_ns", "ns", base, x.size());
    print(name + "_node_ns", "ns", node, x.size());
    print(name + "_r2", "ratio", 1 - rest / all, x.size());
}

static CUstream streams[5];
static CUevent fork_event, joins[4], begin_event, end_event;
static CUfunction kernel;

static void launch(CUstream s) { CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr)); }

template <class F> static CUgraph record(F f) {
    CUgraph g;
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    f();
    CHECK(cuStreamEndCapture(streams[0], &g));
    return g;
}

static CUgraphExec instantiate(CUgraph g) {
    CUgraphExec x;
    CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
    CHECK(cuGraphDestroy(g));
    return x;
}

// between is the GPU's time between events around a launch of a graph. A graph
// of a thousand empty kernels in front holds the stream until all is submitted.
static double between(CUgraphExec front, CUgraphExec x) {
    float ms;
    CHECK(cuGraphLaunch(front, streams[0]));
    CHECK(cuEventRecord(begin_event, streams[0]));
    CHECK(cuGraphLaunch(x, streams[0]));
    CHECK(cuEventRecord(end_event, streams[0]));
    CHECK(cuStreamSynchronize(streams[0]));
    CHECK(cuEventElapsedTime(&ms, begin_event, end_event));
    return ms * 1e6;
}

static CUgraphExec levels(int width, int n) {
    return instantiate(record([&] {
        for (int l = 0; l < n; l++) {
            launch(streams[0]);
            CHECK(cuEventRecord(fork_event, streams[0]));
            for (int i = 0; i < width; i++) {
                CHECK(cuStreamWaitEvent(streams[1 + i], fork_event, 0));
                launch(streams[1 + i]);
                CHECK(cuEventRecord(joins[i], streams[1 + i]));
                CHECK(cuStreamWaitEvent(streams[0], joins[i], 0));
            }
            launch(streams[0]);
        }
    }));
}

int main() {
    CHECK(cudaFree(nullptr)); // the runtime's context is the primary one
    CHECK(cudaGetFuncBySymbol((cudaFunction_t *)&kernel, (const void *)empty));
    for (CUstream &s : streams) CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (CUevent *e : {&begin_event, &end_event}) CHECK(cuEventCreate(e, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    for (CUevent &e : joins) CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));

    sample("call.driver_ns", 30, [] { return positive(floor_nop(1000), "nop") / 1000; });
    sample("launch.kernel_ns", 30, [] { return positive(floor_kernel(kernel, streams[0], nullptr, 1, 100), "kernel") / 100; });
    sample("launch.kernel_runtime_ns", 30, [] { // as CUDA C++ is written: <<<>>> through the runtime
        const long long begin = now();
        for (int i = 0; i < 100; i++) empty<<<1, 1, 0, (cudaStream_t)streams[0]>>>();
        const long long spent = now() - begin;
        CHECK(cudaGetLastError());
        CHECK(cuStreamSynchronize(streams[0]));
        return spent / 100.0;
    });

    const CUgraphExec front = instantiate(record([] { for (int i = 0; i < 1000; i++) launch(streams[0]); }));
    const std::vector<int> sizes = {1, 10, 100, 300, 1000};
    std::vector<double> host, e2e, gpu;
    for (const int n : sizes) {
        const std::string size = std::to_string(n) + "_ns";
        std::vector<double> made[3];
        CUgraphExec x = nullptr;
        for (int i = 0; i < 6; i++) { // the first does not count
            if (x) CHECK(cuGraphExecDestroy(x));
            const long long t0 = now();
            const CUgraph g = record([&] { for (int k = 0; k < n; k++) launch(streams[0]); });
            const long long t1 = now();
            x = instantiate(g);
            const long long t2 = now();
            CHECK(cuGraphLaunch(x, streams[0]));
            const long long t3 = now();
            CHECK(cuStreamSynchronize(streams[0]));
            if (i > 0) made[0].push_back(t1 - t0), made[1].push_back(t2 - t1), made[2].push_back(t3 - t2);
        }
        print("graph.capture_" + size, "ns", median(made[0]), 5);
        print("graph.instantiate_" + size, "ns", median(made[1]), 5);
        print("graph.first_launch_" + size, "ns", median(made[2]), 5);
        const int burst = std::max(5, std::min(20, 3000 / n));
        host.push_back(sample("launch.graph_" + size, 30, [&] { return positive(floor_graph(x, streams[0], 1, burst), "graph") / burst; }));
        e2e.push_back(sample("graph.e2e_" + size, 30, [&] {
            const long long begin = now();
            CHECK(cuGraphLaunch(x, streams[0]));
            CHECK(cuStreamSynchronize(streams[0]));
            return (double)(now() - begin);
        }));
        gpu.push_back(sample("graph.gpu_" + size, 30, [&] { return between(front, x); }));
        CHECK(cuGraphExecDestroy(x));
    }
    fit("launch.graph_fit", sizes, host);
    fit("graph.e2e_fit", sizes, e2e);
    fit("graph.gpu_fit", sizes, gpu);

    const auto idle = [](const std::string &name, int n, auto f) {
        sample(name, 30, [&] {
            const long long begin = now();
            for (int i = 0; i < n; i++) f();
            const long long spent = now() - begin;
            CHECK(cuCtxSynchronize());
            return spent / (double)n;
        });
    };
    idle("sync.device_idle_ns", 100, [] { CHECK(cuCtxSynchronize()); });
    idle("sync.stream_idle_ns", 100, [] { CHECK(cuStreamSynchronize(streams[0])); });
    idle("sync.event_idle_ns", 50, [] {
        CHECK(cuEventRecord(fork_event, streams[0]));
        CHECK(cuStreamWaitEvent(streams[1], fork_event, 0));
    });
    for (const int width : {1, 2, 4}) {
        const CUgraphExec few = levels(width, 10), many = levels(width, 50);
        const double a = sample("", 30, [&] { return between(front, few); });
        const double b = sample("", 30, [&] { return between(front, many); });
        print("graph.fork_join_" + std::to_string(width) + "_ns", "ns", (b - a) / 40, 30);
        CHECK(cuGraphExecDestroy(few));
        CHECK(cuGraphExecDestroy(many));
    }
    CHECK(cuGraphExecDestroy(front));
    for (CUevent e : {begin_event, end_event, fork_event, joins[0], joins[1], joins[2], joins[3]}) CHECK(cuEventDestroy(e));
    for (CUstream s : streams) CHECK(cuStreamDestroy(s));
    return 0;
}
#endif

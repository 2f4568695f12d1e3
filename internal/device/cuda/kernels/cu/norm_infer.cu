// The scales and biases of inference from running statistics.
#include "common.cuh"

// Where a batch norm's vectors lie, as element offsets; passed by value.
#define MAX_NORMS 96
struct NormSpans {
    int count;
    int gamma[MAX_NORMS], beta[MAX_NORMS], mean[MAX_NORMS], var[MAX_NORMS], scale[MAX_NORMS], bias[MAX_NORMS], c[MAX_NORMS];
};

// Grid: one block a norm. Scale and bias of inference.
extern "C" __global__ void __launch_bounds__(256)
    bn_infer(const float *params, const float *running, float *inf, float eps, const __grid_constant__ NormSpans spans) {
    dependency_wait();
    const int n = blockIdx.x;
    const int gamma = spans.gamma[n], beta = spans.beta[n], mean = spans.mean[n], var = spans.var[n];
    const int scale = spans.scale[n], bias = spans.bias[n], c = spans.c[n];
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
        const float invstd = (float)(1.0 / sqrt((double)running[var + i] + (double)eps));
        const float s = __fmul_rn(params[gamma + i], invstd);
        inf[scale + i] = s;
        inf[bias + i] = __fsub_rn(params[beta + i], __fmul_rn(running[mean + i], s));
    }
    dependency_trigger();
}

// The sums for metrics (lib/ops/metric_sums.cpp), in f64. Counts are added atomically: sums of ones
// are exact in any order. Other sums are computed by one block each, in a fixed order.
#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "cuda/strided_copy.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct MetricCall {
  enum class Kind : uint8_t { confusion, top_k, regression, binary } kind;
  DType dtype;    // of outputs and floating targets: f32 or f64
  int64_t rows;   // labels, samples, or groups of binary classes
  int64_t width;  // classes, or numbers per sample
  int64_t k;
  bool accumulate;
};

MetricCall::Kind metric_kind(std::string_view op) {
  return op == "confusion_matrix"  ? MetricCall::Kind::confusion
         : op == "top_k_correct"   ? MetricCall::Kind::top_k
         : op == "regression_sums" ? MetricCall::Kind::regression
                                   : MetricCall::Kind::binary;
}

constexpr int kBlock = kRowBlock;

// One warp per row of logits.
template <typename T>
__global__ void label_counts_kernel(MetricCall c, const T* logits, const int32_t* labels,
                                    double* sums) {
  const int64_t row = own_row<kWarp>();
  if (row >= c.rows) return;  // uniform over a warp
  const int64_t label = labels[row];
  if (label < 0) return;  // uniform too
  const T* x = logits + row * c.width;
  if (c.kind == MetricCall::Kind::top_k) {
    const T own = x[label];
    double before = 0;  // greater ones, and equal ones that come first
    for (int64_t k = own_lane<kWarp>(); k < c.width; k += kWarp) {
      before += x[k] > own || (x[k] == own && k < label) ? 1 : 0;
    }
    before = warp_sum(before);
    if (own_lane<kWarp>() == 0 && before < static_cast<double>(c.k) && own == own) {
      atomicAdd(sums, 1.0);
    }
    return;
  }
  T top = 0;
  const int64_t best = first_greatest<kWarp>(
      c.width, [&](int64_t k) { return x[k]; }, top);
  if (own_lane<kWarp>() == 0) {
    atomicAdd(sums + label * c.width + (best < c.width ? best : 0), 1.0);  // NaN: the first
  }
}

// One block per number of a sample.
template <typename T>
__global__ void regression_kernel(MetricCall c, const T* x, const T* t, double* sums) {
  const int64_t output = blockIdx.x;
  double sum[5] = {};
  for (int64_t n = threadIdx.x; n < c.rows; n += kBlock) {
    const double target = static_cast<double>(t[n * c.width + output]);
    if (target != target) continue;
    const double d = static_cast<double>(x[n * c.width + output]) - target;
    sum[0] += 1;
    sum[1] += std::fabs(d);
    sum[2] += d * d;
    sum[3] += target;
    sum[4] += target * target;
  }
  for (int i = 0; i < 5; ++i) {
    const double total = block_sum(sum[i]);
    double& out = sums[output * 5 + i];
    if (threadIdx.x == 0) out = c.accumulate ? out + total : total;
  }
}

template <typename T>
__global__ void binary_counts_kernel(MetricCall c, const T* x, const T* t, double* sums) {
  for (int64_t i = thread_index(); i < c.rows * c.width; i += thread_count()) {
    if (t[i] != t[i]) continue;
    const bool said = x[i] > T(0), is = t[i] > T(0.5);
    const int cell = said ? (is ? 0 : 1) : (is ? 2 : 3);
    atomicAdd(sums + i % c.width * 4 + cell, 1.0);
  }
}

// One block per source.
__global__ void source_sums_kernel(const double* losses, const int32_t* targets,
                                   const int32_t* sources, double* sums, int64_t rows,
                                   bool accumulate) {
  const auto source = static_cast<int32_t>(blockIdx.x);
  double loss = 0, count = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kBlock) {
    if (sources[r] != source || targets[r] < 0) continue;
    loss += losses[r];
    count += 1;
  }
  loss = block_sum(loss);
  count = block_sum(count);
  if (threadIdx.x != 0) return;
  sums[2 * source] = accumulate ? sums[2 * source] + loss : loss;
  sums[2 * source + 1] = accumulate ? sums[2 * source + 1] + count : count;
}

template <typename T>
void launch_metric(const MetricCall& c, const Bindings& b, CudaStream stream) {
  const T *values = b.input<T>(0), *numbers = b.input<T>(1);
  auto* sums = b.output<double>(0);
  switch (c.kind) {
    case MetricCall::Kind::regression:
      DLTRAIN_LAUNCH(regression_kernel<T>, static_cast<unsigned>(c.width), kBlock, stream, c,
                     values, numbers, sums);
      return;
    case MetricCall::Kind::binary:
      DLTRAIN_LAUNCH(binary_counts_kernel<T>, stride_grid(c.rows * c.width, kBlock), kBlock, stream,
                     c, values, numbers, sums);
      return;
    default:
      DLTRAIN_LAUNCH(label_counts_kernel<T>,
                     static_cast<unsigned>(divide_up(c.rows, kBlock / kWarp)), kBlock, stream, c,
                     values, b.input<int32_t>(1), sums);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_metric_sums(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (x.dtype != DType::f32 && x.dtype != DType::f64) return nullptr;
  const bool labels = request.inputs[1].dtype == DType::i32;
  const int64_t width = labels ? x.shape[-1] : request.outputs[0].shape[0];
  const MetricCall call{.kind = metric_kind(request.op),
                        .dtype = x.dtype,
                        .rows = width > 0 ? x.shape.elements() / width : 0,
                        .width = width,
                        .k = request.attributes.integer("k", 1),
                        .accumulate = request.accumulate};
  const int64_t sums = request.outputs[0].shape.elements();
  return make_kernel([call, sums](const Bindings& b, Stream& stream) {
    if (!call.accumulate) launch_fill(8, 0, b.outputs[0], sums, stream.native());
    if (call.rows * call.width == 0) return;
    with_wide(call.dtype, [&]<typename T>(T) { launch_metric<T>(call, b, stream.native()); });
  });
}

std::unique_ptr<Kernel> make_cuda_source_sums(const KernelRequest& request) {
  const int64_t rows = request.inputs[0].shape.elements();
  const auto sources = static_cast<unsigned>(request.outputs[0].shape[0]);
  return make_kernel([rows, sources, accumulate = request.accumulate](const Bindings& b,
                                                                      Stream& stream) {
    DLTRAIN_LAUNCH(source_sums_kernel, sources, kBlock, stream.native(), b.input<double>(0),
                   b.input<int32_t>(1), b.input<int32_t>(2), b.output<double>(0), rows, accumulate);
  });
}

}  // namespace dltrain

// Adafactor: variances of rows and columns first, then the squares of the steps, then the steps.
// All sums are taken in double in an order that depends on shapes alone.
#include "cuda/adafactor.h"
#include "cuda/device_code.cuh"

namespace dltrain {
namespace {

constexpr int kBlock = 256;
constexpr int kColumnBlock = 1024;
static_assert(kBlock == kAdafactorRows * kWarp && kAdafactorColumns == kWarp);

template <typename T>
__device__ double squared(T x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

// Squares of the parameter, and the variances of elements where they are kept.
template <typename T>
__global__ void chunk_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.chunks.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const T* p = static_cast<const T*>(t.parameter) + part.begin;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < part.count; i += kBlock) sum += squared(p[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) c.sums[blockIdx.x] = sum;
  if (t.factored) return;
  const auto view = gradient_view<T>(*state);
  const AdafactorMove<T> move(static_cast<T>(c.rule.share(*state)));
  const T* g = static_cast<const T*>(t.gradient) + part.begin;
  T* variance = static_cast<T*>(t.row) + part.begin;
  for (int64_t i = threadIdx.x; i < part.count; i += kBlock) {
    variance[i] = move(variance[i], view(g[i]));
  }
}

// A warp a row.
template <typename T>
__global__ void row_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.rows.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const int64_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t row = part.begin + (warp < part.count ? warp : part.count - 1);
  const auto view = gradient_view<T>(*state);
  const T* g = static_cast<const T*>(t.gradient) + row * t.columns;
  double sum = 0;
  for (int64_t i = lane; i < t.columns; i += kWarp) sum += squared(view(g[i]));
  sum = warp_sum(sum);
  if (lane != 0 || warp >= part.count) return;
  T* variance = static_cast<T*>(t.row) + row;
  *variance =
      adafactor_moved(*variance, sum / static_cast<double>(t.columns), c.rule.share(*state));
}

// A lane a column; the warps share its rows.
template <typename T>
__global__ void column_kernel(AdafactorCall c, const StepState* state) {
  __shared__ double partial[kColumnBlock / kWarp][kWarp + 1];
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.columns.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const int64_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const auto view = gradient_view<T>(*state);
  double sum = 0;
  if (lane < part.count) {
    const T* g = static_cast<const T*>(t.gradient) + part.begin + lane;
    for (int64_t r = warp; r < t.rows; r += kColumnBlock / kWarp) {
      sum += squared(view(g[r * t.columns]));
    }
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || lane >= part.count) return;
  sum = 0;
  for (int w = 0; w < kColumnBlock / kWarp; ++w) sum += partial[w][lane];
  T* variance = static_cast<T*>(t.column) + part.begin + lane;
  *variance = adafactor_moved(*variance, sum / static_cast<double>(t.rows), c.rule.share(*state));
}

__device__ double sum_of_chunks(const AdafactorTensor& t, const double* sums) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < t.chunks; i += kBlock) sum += sums[t.first_chunk + i];
  return block_sum(sum);
}

__device__ double root_mean(const AdafactorTensor& t, double sum) {
  return std::sqrt(sum / static_cast<double>(t.rows * t.columns));
}

// A block a tensor: what the quotients need.
template <typename T>
__global__ void parameter_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorTensor& t = c.tensors[blockIdx.x];
  const double squares = sum_of_chunks(t, c.sums);
  double rows = 0;
  if (t.factored) {
    const T* variance = static_cast<const T*>(t.row);
    for (int64_t i = threadIdx.x; i < t.rows; i += kBlock) {
      rows += static_cast<double>(variance[i]);
    }
  }
  rows = block_sum(rows);
  if (threadIdx.x != 0) return;
  c.factors[blockIdx.x] = {
      root_mean(t, squares),
      t.factored ? c.rule.inverse_mean(rows, static_cast<double>(t.rows)) : 1.0, 0.0};
}

// g / √variance of one element of a tensor.
template <typename T>
struct Quotient {
  GradientView<T> view;
  T inverse_mean, least;

  __device__ T operator()(const AdafactorTensor& t, int64_t i) const {
    const T g = view(static_cast<const T*>(t.gradient)[i]);
    const T* row = static_cast<const T*>(t.row);
    if (!t.factored) return adafactor_quotient(g, row[i], least);
    const T scale = row[i / t.columns] * inverse_mean;
    return adafactor_quotient(g, scale * static_cast<const T*>(t.column)[i % t.columns], least);
  }
};

template <typename T>
__device__ Quotient<T> quotient_of(const AdafactorCall& c, int64_t tensor, const StepState& state) {
  return {gradient_view<T>(state), static_cast<T>(c.factors[tensor].inverse_mean),
          c.rule.least<T>()};
}

template <typename T>
__global__ void quotient_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.chunks.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const auto quotient = quotient_of<T>(c, part.tensor, *state);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < part.count; i += kBlock) {
    sum += squared(quotient(t, part.begin + i));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) c.sums[blockIdx.x] = sum;
}

__global__ void step_size_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorTensor& t = c.tensors[blockIdx.x];
  const double squares = sum_of_chunks(t, c.sums);
  if (threadIdx.x != 0) return;
  AdafactorFactors& f = c.factors[blockIdx.x];
  f.step = c.rule.step(*state, state->in.learning_rate * t.group.lr_scale, f.parameter_rms,
                       root_mean(t, squares));
}

template <typename T>
__global__ void step_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.chunks.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const auto quotient = quotient_of<T>(c, part.tensor, *state);
  const T step = static_cast<T>(c.factors[part.tensor].step);
  const T keep =
      static_cast<T>(1 - state->in.learning_rate * t.group.lr_scale * t.group.weight_decay);
  T* p = static_cast<T*>(t.parameter);
  for (int64_t i = part.begin + threadIdx.x; i < part.begin + part.count; i += kBlock) {
    p[i] = keep * p[i] - step * quotient(t, i);
  }
}

template <typename T>
void adafactor_typed(const AdafactorCall& c, const StepState* state, CudaStream stream) {
  const auto chunks = static_cast<unsigned>(c.chunks.count);
  const auto tensors = static_cast<unsigned>(c.tensor_count);
  DLTRAIN_LAUNCH(chunk_kernel<T>, chunks, kBlock, stream, c, state);
  if (c.rows.count > 0) {
    DLTRAIN_LAUNCH(row_kernel<T>, static_cast<unsigned>(c.rows.count), kBlock, stream, c, state);
    DLTRAIN_LAUNCH(column_kernel<T>, static_cast<unsigned>(c.columns.count), kColumnBlock, stream,
                   c, state);
  }
  DLTRAIN_LAUNCH(parameter_kernel<T>, tensors, kBlock, stream, c, state);
  DLTRAIN_LAUNCH(quotient_kernel<T>, chunks, kBlock, stream, c, state);
  DLTRAIN_LAUNCH(step_size_kernel, tensors, kBlock, stream, c, state);
  DLTRAIN_LAUNCH(step_kernel<T>, chunks, kBlock, stream, c, state);
}

}  // namespace

void launch_adafactor_update(const AdafactorCall& call, const StepState* state, CudaStream stream) {
  if (call.chunks.count == 0) return;
  (call.dtype == DType::f64 ? adafactor_typed<double> : adafactor_typed<float>)(call, state,
                                                                                stream);
}

}  // namespace dltrain

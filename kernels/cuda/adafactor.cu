// adafactor_update (lib/ops/update_adaptive.cpp) over all tensors at once: lists of chunks, rows
// and columns in device memory, one block each. A tensor of two or more axes is a matrix of its
// first axis by the rest; others have a variance per element.
//
// Order: variances of rows and columns, squares of the steps, steps. All sums are in double in an
// order that depends only on shapes.
#include <algorithm>
#include <vector>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/update_table.h"
#include "shared/adafactor_rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kAdafactorChunk = 8192;  // elements per block
constexpr int64_t kAdafactorRows = 8;      // rows per block: one per warp
constexpr int64_t kAdafactorColumns = 32;  // columns per block: one per lane

struct AdafactorTensor {
  void *parameter, *gradient, *row, *column;
  int64_t rows, columns;  // 1 row where not factored
  bool factored;
  GroupSettings group;
  int64_t first_chunk, chunks;
};

// Elements, rows or columns [begin, begin + count) of a tensor.
struct AdafactorPart {
  int64_t tensor, begin, count;
};
struct AdafactorParts {
  const AdafactorPart* parts = nullptr;  // device memory
  int64_t count = 0;
};

// Values of a step that all elements of a tensor share.
struct AdafactorFactors {
  double parameter_rms, inverse_mean, step;
};

struct AdafactorCall {
  DType dtype = DType::f32;  // or f64
  AdafactorRule rule;
  const AdafactorTensor* tensors = nullptr;  // device memory
  int64_t tensor_count = 0;
  AdafactorParts chunks, rows, columns;
  double* sums = nullptr;               // scratch: of each chunk
  AdafactorFactors* factors = nullptr;  // scratch: of each tensor
};

constexpr int kBlock = 256;
constexpr int kColumnBlock = 1024;
static_assert(kBlock == kAdafactorRows * kWarp && kAdafactorColumns == kWarp);

template <typename T>
__device__ double squared(T x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

// Computes the squares of the parameter, and the variances of elements of unfactored tensors.
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
  const AdafactorLerp<T> move(static_cast<T>(c.rule.share(*state)));
  const T* g = static_cast<const T*>(t.gradient) + part.begin;
  T* variance = static_cast<T*>(t.row) + part.begin;
  for (int64_t i = threadIdx.x; i < part.count; i += kBlock) {
    variance[i] = move(variance[i], view(g[i]));
  }
}

// One warp per row.
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
  *variance = adafactor_lerp(*variance, sum / static_cast<double>(t.columns), c.rule.share(*state));
}

// One lane per column; the warps share its rows.
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
  *variance = adafactor_lerp(*variance, sum / static_cast<double>(t.rows), c.rule.share(*state));
}

__device__ double sum_of_chunks(const AdafactorTensor& t, const double* sums) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < t.chunks; i += kBlock) sum += sums[t.first_chunk + i];
  return block_sum(sum);
}

__device__ double root_mean(const AdafactorTensor& t, double sum) {
  return std::sqrt(sum / static_cast<double>(t.rows * t.columns));
}

// One block per tensor: computes the values that the quotients need.
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

// Computes g / √variance of one element of a tensor.
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

// Divides [0, count) of a tensor into parts of at most `most`.
void cut(std::vector<AdafactorPart>& parts, int64_t tensor, int64_t count, int64_t most) {
  for (int64_t begin = 0; begin < count; begin += most) {
    parts.push_back({tensor, begin, std::min(most, count - begin)});
  }
}

// The op for any addresses.
class AdafactorPlan {
 public:
  explicit AdafactorPlan(const KernelRequest& request) : device_(&request.device) {
    const UpdateGroups groups(request.attributes);
    call_.dtype = request.inputs[1].dtype;
    call_.rule = adafactor_rule(request.attributes);
    const size_t count = groups.group.size();
    for (size_t i = 0; i < count; ++i) add(request.inputs[1 + i].shape, groups.of(i));
    call_.tensor_count = static_cast<int64_t>(count);
  }

  size_t workspace_bytes() const {
    return chunks_.size() * sizeof(double) + tensors_.size() * sizeof(AdafactorFactors);
  }

  struct Tables {
    AdafactorCall call;
    DeviceTable<AdafactorTensor> tensors;
    DeviceTable<AdafactorPart> chunks, rows, columns;
  };
  Tables operator()(const Bindings& bindings) const {
    std::vector<AdafactorTensor> tensors = tensors_;
    const size_t count = tensors.size();
    for (size_t i = 0; i < count; ++i) {
      AdafactorTensor& t = tensors[i];
      t.parameter = bindings.inputs[1 + i];
      t.gradient = bindings.inputs[1 + count + i];
      t.row = bindings.inputs[1 + 2 * count + i];
      t.column = bindings.inputs[1 + 3 * count + i];
    }
    Tables out{
        call_, {*device_, tensors}, {*device_, chunks_}, {*device_, rows_}, {*device_, columns_}};
    const auto parts = [](const DeviceTable<AdafactorPart>& table, const auto& values) {
      return AdafactorParts{table.data(), static_cast<int64_t>(values.size())};
    };
    out.call.tensors = out.tensors.data();
    out.call.chunks = parts(out.chunks, chunks_);
    out.call.rows = parts(out.rows, rows_);
    out.call.columns = parts(out.columns, columns_);
    out.call.sums = static_cast<double*>(bindings.workspace);
    out.call.factors = reinterpret_cast<AdafactorFactors*>(out.call.sums + chunks_.size());
    return out;
  }

 private:
  void add(const Shape& shape, const GroupSettings& group) {
    const auto index = static_cast<int64_t>(tensors_.size());
    AdafactorTensor t{};
    t.factored = shape.rank() > 1;
    t.rows = t.factored ? shape[0] : 1;
    t.columns = t.factored ? shape.elements(1, shape.rank()) : shape.elements();
    t.group = group;
    t.first_chunk = static_cast<int64_t>(chunks_.size());
    cut(chunks_, index, t.rows * t.columns, kAdafactorChunk);
    t.chunks = static_cast<int64_t>(chunks_.size()) - t.first_chunk;
    if (t.factored && t.chunks > 0) {
      cut(rows_, index, t.rows, kAdafactorRows);
      cut(columns_, index, t.columns, kAdafactorColumns);
    }
    tensors_.push_back(t);
  }

  Device* device_;
  std::vector<AdafactorTensor> tensors_;  // without addresses
  std::vector<AdafactorPart> chunks_, rows_, columns_;
  AdafactorCall call_;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_adafactor_update(const KernelRequest& request) {
  if (request.inputs.size() < 2 || !is_wide_update(request)) return nullptr;
  const AdafactorPlan plan(request);
  return make_prepared_kernel(
      plan,
      [](const AdafactorPlan::Tables& tables, const Bindings& b, Stream& stream) {
        const AdafactorCall& call = tables.call;
        if (call.chunks.count == 0) return;
        (call.dtype == DType::f64
             ? adafactor_typed<double>
             : adafactor_typed<float>)(call, b.input<StepState>(0), stream.native());
      },
      plan.workspace_bytes());
}

}  // namespace dltrain

// Adafactor (lib/ops/update_adaptive.cpp) over all tensors at once: lists of chunks, rows and
// columns in device memory, one block each. A tensor of two or more axes is a matrix of its first
// axis by the rest; others have a variance per element. Sums are in double in an order that depends
// only on shapes.
#include <algorithm>
#include <vector>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/update_table.h"
#include "ops/update.h"
#include "shared/adafactor_rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kAdafactorChunk = 8192;  // elements per block
constexpr int64_t kAdafactorRows = 8;      // rows per block: one per warp
constexpr int64_t kAdafactorColumns = 32;  // columns per block: one per lane

struct AdafactorTensor {
  void *parameter, *gradient, *row, *column;
  double *sums, *squares;  // results of the ops; sums: of parameter, rows and columns
  AdafactorMatrix matrix;
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
  double inverse_mean, step;
};

struct AdafactorCall {
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

template <typename T>
__global__ void parameter_kernel(AdafactorCall c) {
  const AdafactorPart part = c.chunks.parts[blockIdx.x];
  const T* p = static_cast<const T*>(c.tensors[part.tensor].parameter) + part.begin;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < part.count; i += kBlock) sum += squared(p[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) c.sums[blockIdx.x] = sum;
}

// One warp per row of the matrix: the sum over what the op is given of it.
template <typename T>
__global__ void row_kernel(AdafactorCall c, const StepState* state) {
  const AdafactorPart part = c.rows.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const AdafactorMatrix& m = t.matrix;
  const int64_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t row = part.begin + (warp < part.count ? warp : part.count - 1);
  const int64_t in_shard = m.row.in_shard(row), columns = m.column.count();
  const int64_t begin = in_shard * columns - m.begin, end = begin + columns;
  const auto view = gradient_view<T>(*state);
  const T* g = static_cast<const T*>(t.gradient);
  double sum = 0;
  if (in_shard >= 0 && state->out.finite != 0) {
    const int64_t last = end < m.count ? end : m.count;
    for (int64_t i = (begin > 0 ? begin : 0) + lane; i < last; i += kWarp) {
      sum += squared(view(g[i]));
    }
  }
  sum = warp_sum(sum);
  if (lane == 0 && warp < part.count) t.sums[1 + row] = sum;
}

// One lane per column; the warps share its rows.
template <typename T>
__global__ void column_kernel(AdafactorCall c, const StepState* state) {
  __shared__ double partial[kColumnBlock / kWarp][kWarp + 1];
  const AdafactorPart part = c.columns.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const AdafactorMatrix& m = t.matrix;
  const int64_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const auto view = gradient_view<T>(*state);
  double sum = 0;
  const int64_t in_shard = lane < part.count ? m.column.in_shard(part.begin + lane) : -1;
  if (in_shard >= 0 && state->out.finite != 0 && m.count > 0) {
    const T* g = static_cast<const T*>(t.gradient);
    const int64_t columns = m.column.count(), last = (m.begin + m.count - 1) / columns;
    for (int64_t r = m.begin / columns + warp; r <= last; r += kColumnBlock / kWarp) {
      const int64_t i = r * columns + in_shard - m.begin;
      if (i >= 0 && i < m.count) sum += squared(view(g[i]));
    }
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || lane >= part.count) return;
  sum = 0;
  for (int w = 0; w < kColumnBlock / kWarp; ++w) sum += partial[w][lane];
  t.sums[1 + m.rows + part.begin + lane] = sum;
}

__device__ double sum_of_chunks(const AdafactorTensor& t, const double* sums) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < t.chunks; i += kBlock) sum += sums[t.first_chunk + i];
  return block_sum(sum);
}

// One block per tensor: adds up its chunks.
__global__ void total_kernel(AdafactorCall c, const StepState* state, bool squares) {
  const AdafactorTensor& t = c.tensors[blockIdx.x];
  const double sum = sum_of_chunks(t, c.sums);
  if (threadIdx.x == 0) *(squares ? t.squares : t.sums) = state->out.finite == 0 ? 0.0 : sum;
}

// One block per tensor: moves the variances of rows and columns by the sums, where `moves`, and
// computes the values that the quotients and steps need.
template <typename T>
__global__ void factors_kernel(AdafactorCall c, const StepState* state, bool moves) {
  if (state->out.finite == 0) return;
  const AdafactorTensor& t = c.tensors[blockIdx.x];
  const AdafactorMatrix& m = t.matrix;
  T *row = static_cast<T*>(t.row), *column = static_cast<T*>(t.column);
  const double share = c.rule.share(*state);
  double rows = 0;
  for (int64_t i = threadIdx.x; m.factored && i < m.rows; i += kBlock) {
    if (moves)
      row[i] = adafactor_lerp(row[i], t.sums[1 + i] / static_cast<double>(m.columns), share);
    rows += static_cast<double>(row[i]);
  }
  for (int64_t i = threadIdx.x; moves && m.factored && i < m.columns; i += kBlock) {
    column[i] =
        adafactor_lerp(column[i], t.sums[1 + m.rows + i] / static_cast<double>(m.rows), share);
  }
  rows = block_sum(rows);
  if (threadIdx.x != 0) return;
  const auto elements = static_cast<double>(m.rows * m.columns);
  const double inverse_mean =
      m.factored ? c.rule.inverse_mean(rows, static_cast<double>(m.rows)) : 1.0;
  const double step =
      moves ? 0.0
            : c.rule.step(*state, state->in.learning_rate * t.group.lr_scale,
                          std::sqrt(t.sums[0] / elements), std::sqrt(t.squares[0] / elements));
  c.factors[blockIdx.x] = {inverse_mean, step};
}

// Computes g / √variance of one element of a tensor.
template <typename T>
struct Quotient {
  GradientView<T> view;
  T inverse_mean, least;

  __device__ T operator()(const AdafactorTensor& t, int64_t i) const {
    const T g = view(static_cast<const T*>(t.gradient)[i]);
    const T* row = static_cast<const T*>(t.row);
    if (!t.matrix.factored) return adafactor_quotient(g, row[i], least);
    const int64_t at = t.matrix.begin + i, columns = t.matrix.column.count();
    const T scale = row[t.matrix.row.in_matrix(at / columns)] * inverse_mean;
    const T* column = static_cast<const T*>(t.column);
    return adafactor_quotient(g, scale * column[t.matrix.column.in_matrix(at % columns)], least);
  }
};

template <typename T>
__device__ Quotient<T> quotient_of(const AdafactorCall& c, int64_t tensor, const StepState& state) {
  return {gradient_view<T>(state), static_cast<T>(c.factors[tensor].inverse_mean),
          c.rule.least<T>()};
}

// Computes the squares of the quotients; moves the variances of unfactored tensors before.
template <typename T>
__global__ void quotient_kernel(AdafactorCall c, const StepState* state) {
  if (state->out.finite == 0) return;
  const AdafactorPart part = c.chunks.parts[blockIdx.x];
  const AdafactorTensor& t = c.tensors[part.tensor];
  const auto quotient = quotient_of<T>(c, part.tensor, *state);
  const AdafactorLerp<T> move(static_cast<T>(c.rule.share(*state)));
  T* variance = static_cast<T*>(t.row);
  double sum = 0;
  for (int64_t i = part.begin + threadIdx.x; i < part.begin + part.count; i += kBlock) {
    if (!t.matrix.factored) {
      variance[i] = move(variance[i], quotient.view(static_cast<const T*>(t.gradient)[i]));
    }
    sum += squared(quotient(t, i));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) c.sums[blockIdx.x] = sum;
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
void adafactor_sums(const AdafactorCall& c, const StepState* state, CudaStream stream) {
  if (c.chunks.count > 0) {
    DLTRAIN_LAUNCH(parameter_kernel<T>, static_cast<unsigned>(c.chunks.count), kBlock, stream, c);
  }
  if (c.rows.count > 0) {
    DLTRAIN_LAUNCH(row_kernel<T>, static_cast<unsigned>(c.rows.count), kBlock, stream, c, state);
    DLTRAIN_LAUNCH(column_kernel<T>, static_cast<unsigned>(c.columns.count), kColumnBlock, stream,
                   c, state);
  }
  DLTRAIN_LAUNCH(total_kernel, static_cast<unsigned>(c.tensor_count), kBlock, stream, c, state,
                 false);
}

template <typename T>
void adafactor_moments(const AdafactorCall& c, const StepState* state, CudaStream stream) {
  const auto tensors = static_cast<unsigned>(c.tensor_count);
  DLTRAIN_LAUNCH(factors_kernel<T>, tensors, kBlock, stream, c, state, true);
  if (c.chunks.count > 0) {
    DLTRAIN_LAUNCH(quotient_kernel<T>, static_cast<unsigned>(c.chunks.count), kBlock, stream, c,
                   state);
  }
  DLTRAIN_LAUNCH(total_kernel, tensors, kBlock, stream, c, state, true);
}

template <typename T>
void adafactor_update(const AdafactorCall& c, const StepState* state, CudaStream stream) {
  if (c.chunks.count == 0) return;
  DLTRAIN_LAUNCH(factors_kernel<T>, static_cast<unsigned>(c.tensor_count), kBlock, stream, c, state,
                 false);
  DLTRAIN_LAUNCH(step_kernel<T>, static_cast<unsigned>(c.chunks.count), kBlock, stream, c, state);
}

using AdafactorRun = void (*)(const AdafactorCall& call, const StepState* state, CudaStream stream);

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
    call_.rule = adafactor_rule(request.attributes);
    const size_t count = groups.group.size();
    for (size_t i = 0; i < count; ++i) {
      add(adafactor_matrix(request.attributes, i, request.inputs[1 + i].shape), groups.of(i));
    }
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
      const auto role = [&](size_t k) -> void* {
        const size_t at = 1 + k * count + i;
        return at < bindings.inputs.size() ? bindings.inputs[at] : nullptr;
      };
      AdafactorTensor& t = tensors[i];
      t.parameter = role(0);
      t.gradient = role(1);
      t.row = role(2);
      t.column = role(3);
      // The op makes the first of these that it does not read.
      void* made = bindings.outputs[bindings.outputs.size() - count + i];
      t.sums = static_cast<double*>(role(4) != nullptr ? role(4) : made);
      t.squares = static_cast<double*>(role(5) != nullptr ? role(5) : made);
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
  void add(const AdafactorMatrix& matrix, const GroupSettings& group) {
    const auto index = static_cast<int64_t>(tensors_.size());
    AdafactorTensor t{};
    t.matrix = matrix;
    t.group = group;
    t.first_chunk = static_cast<int64_t>(chunks_.size());
    cut(chunks_, index, matrix.count, kAdafactorChunk);
    t.chunks = static_cast<int64_t>(chunks_.size()) - t.first_chunk;
    if (matrix.factored && matrix.columns > 0) {
      cut(rows_, index, matrix.rows, kAdafactorRows);
      cut(columns_, index, matrix.columns, kAdafactorColumns);
    }
    tensors_.push_back(t);
  }

  Device* device_;
  std::vector<AdafactorTensor> tensors_;  // without addresses
  std::vector<AdafactorPart> chunks_, rows_, columns_;
  AdafactorCall call_;
};

std::unique_ptr<Kernel> make_adafactor(const KernelRequest& request, AdafactorRun single,
                                       AdafactorRun wide) {
  if (request.inputs.size() < 2) return nullptr;
  const DType dtype = request.inputs[1].dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
  const AdafactorPlan plan(request);
  return make_prepared_kernel(
      plan,
      [run = dtype == DType::f64 ? wide : single](const AdafactorPlan::Tables& tables,
                                                  const Bindings& b, Stream& stream) {
        run(tables.call, b.input<StepState>(0), stream.native());
      },
      plan.workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_adafactor_sums(const KernelRequest& request) {
  return make_adafactor(request, adafactor_sums<float>, adafactor_sums<double>);
}
std::unique_ptr<Kernel> make_cuda_adafactor_moments(const KernelRequest& request) {
  return make_adafactor(request, adafactor_moments<float>, adafactor_moments<double>);
}
std::unique_ptr<Kernel> make_cuda_adafactor_update(const KernelRequest& request) {
  return make_adafactor(request, adafactor_update<float>, adafactor_update<double>);
}

}  // namespace dltrain

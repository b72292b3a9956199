// Embedding (lib/ops/embedding.cpp). The gradient sorts the indices of the ids by id, and each row
// of the weight adds its dy in order, without atomic floating-point additions, so sums are
// reproducible. (Atomic counters are integers, whose sums do not depend on the order.)
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/strided_copy.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

constexpr int64_t kMax = (int64_t{1} << 31) - 2;  // ids and rows: indices have 32 bits

struct EmbeddingBackwardCall {
  DType dtype;            // of dy
  int64_t ids;            // number of ids
  int64_t rows, columns;  // of weight
  int64_t first;          // id of its first row
  int64_t padding_idx;
  bool accumulate;
};

constexpr int kBlock = 256;

// E: 1, 2, 4, 8 or 16 bytes; a row has `width` of them. Ids outside [first, first + rows) give
// zeros.
template <typename E>
__global__ void embedding_kernel(const int32_t* ids, const E* weight, E* y, int64_t count,
                                 int64_t width, int64_t first, int64_t rows) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t row = ids[i / width] - first;
    y[i] = row >= 0 && row < rows ? weight[row * width + i % width] : E{};
  }
}

template <typename E>
void embedding_typed(int64_t ids, int64_t row_bytes, int64_t first, int64_t rows, const Bindings& b,
                     Stream& stream) {
  const int64_t width = row_bytes / static_cast<int64_t>(sizeof(E));
  DLTRAIN_LAUNCH(embedding_kernel<E>, stride_grid(ids * width, kBlock), kBlock, stream.native(),
                 b.input<int32_t>(0), b.input<E>(1), b.output<E>(0), ids * width, width, first,
                 rows);
}

// Returns the row that gets the gradient of an id; −1: none of this weight.
__device__ int64_t row_of(const EmbeddingBackwardCall& c, int32_t id) {
  const int64_t row = id - c.first;
  return row >= 0 && row < c.rows && row != c.padding_idx ? row : -1;
}

__global__ void count_kernel(EmbeddingBackwardCall c, const int32_t* ids, int32_t* counts) {
  for (int64_t i = thread_index(); i < c.ids; i += thread_count()) {
    if (const int64_t row = row_of(c, ids[i]); row >= 0) atomicAdd(&counts[row], 1);
  }
}

// starts[r] = counts[0] + … + counts[r − 1], copied to counts as the position of the next entry of
// each id. One block: each thread has a run of rows.
__global__ void start_kernel(int32_t* counts, int32_t* starts, int64_t rows) {
  __shared__ int32_t before[kBlock];
  const int64_t run = divide_up(rows, kBlock);
  const int64_t begin = threadIdx.x * run < rows ? threadIdx.x * run : rows;
  const int64_t end = begin + run < rows ? begin + run : rows;
  int32_t sum = 0;
  for (int64_t r = begin; r < end; ++r) sum += counts[r];
  before[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t total = 0;
    for (int t = 0; t < kBlock; ++t) {
      const int32_t own = before[t];
      before[t] = total;
      total += own;
    }
    starts[rows] = total;
  }
  __syncthreads();
  sum = before[threadIdx.x];
  for (int64_t r = begin; r < end; ++r) {
    const int32_t own = counts[r];
    starts[r] = counts[r] = sum;
    sum += own;
  }
}

__global__ void collect_kernel(EmbeddingBackwardCall c, const int32_t* ids, int32_t* next,
                               int32_t* positions) {
  for (int64_t i = thread_index(); i < c.ids; i += thread_count()) {
    if (const int64_t row = row_of(c, ids[i]); row >= 0) {
      positions[atomicAdd(&next[row], 1)] = static_cast<int32_t>(i);
    }
  }
}

// Orders the entries of each id: each moves after those that are smaller.
__global__ void order_kernel(const int32_t* ids, const int32_t* starts, const int32_t* positions,
                             int32_t* ordered, int64_t rows, int64_t first) {
  const int64_t count = starts[rows];
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int32_t position = positions[i];
    const int64_t row = ids[position] - first;
    const int32_t begin = starts[row], end = starts[row + 1];
    int32_t less = 0;
    for (int32_t k = begin; k < end; ++k) less += positions[k] < position ? 1 : 0;
    ordered[begin + less] = position;
  }
}

constexpr int kRun = 64;  // ordered entries of a block, so frequent tokens are spread over many

// Adds runs of equal ids among the entries of one block. A run that another block begins or goes on
// with is a part of a row: partial[block][0] continues one, partial[block][1] begins one.
template <typename T>
__global__ void add_runs_kernel(const T* dy, const int32_t* ids, const int32_t* starts,
                                const int32_t* ordered, MathOf<T>* dweight, MathOf<T>* partial,
                                int64_t rows, int64_t columns, int64_t first_row, bool accumulate) {
  using M = MathOf<T>;
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * kRun, all = starts[rows];
  const int32_t end = begin + kRun < all ? begin + kRun : all;
  __shared__ int32_t position[kRun], id[kRun];
  for (int32_t k = begin + static_cast<int32_t>(threadIdx.x); k < end; k += kBlock) {
    position[k - begin] = ordered[k];
    id[k - begin] = ids[ordered[k]] - static_cast<int32_t>(first_row);
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < columns; c += kBlock) {
    M sum = 0;
    for (int32_t k = 0; k < end - begin; ++k) {
      sum += static_cast<M>(dy[position[k] * columns + c]);
      if (k + 1 < end - begin && id[k + 1] == id[k]) continue;
      const int32_t first = starts[id[k]], after = starts[id[k] + 1];
      if (first < begin || after > end) {
        partial[(2 * int64_t{blockIdx.x} + (first < begin ? 0 : 1)) * columns + c] = sum;
      } else {
        M& out = dweight[id[k] * columns + c];
        out = accumulate ? out + sum : sum;
      }
      sum = 0;
    }
  }
}

// Adds the parts of the row that begins in this block of the last kernel and goes on in the next.
template <typename M>
__global__ void join_runs_kernel(const int32_t* ids, const int32_t* starts, const int32_t* ordered,
                                 const M* partial, M* dweight, int64_t rows, int64_t columns,
                                 int64_t first_row, bool accumulate) {
  const int32_t end = (static_cast<int32_t>(blockIdx.x) + 1) * kRun;
  if (end >= starts[rows]) return;
  const int64_t id = ids[ordered[end - 1]] - first_row;
  const int32_t after = starts[id + 1];
  if (starts[id] < end - kRun || after <= end) return;
  for (int64_t c = threadIdx.x; c < columns; c += kBlock) {
    M sum = partial[(2 * int64_t{blockIdx.x} + 1) * columns + c];
    for (int64_t block = blockIdx.x + 1; block * kRun < after; ++block) {
      sum += partial[2 * block * columns + c];
    }
    M& out = dweight[id * columns + c];
    out = accumulate ? out + sum : sum;
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_embedding(const KernelRequest& request) {
  const TensorSpec& weight = request.inputs[1];
  const int64_t ids = request.inputs[0].shape.elements();
  const int64_t first = request.attributes.integer("first_row"), rows = weight.shape[0];
  const int64_t bytes = weight.shape[1] * static_cast<int64_t>(dtype_size(weight.dtype));
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (ids * bytes == 0) return;
    const uintptr_t all = static_cast<uintptr_t>(bytes) | reinterpret_cast<uintptr_t>(b.inputs[1]) |
                          reinterpret_cast<uintptr_t>(b.outputs[0]);
    (all % 16 == 0  ? embedding_typed<Pack<uint64_t>>
     : all % 8 == 0 ? embedding_typed<uint64_t>
     : all % 4 == 0 ? embedding_typed<uint32_t>
                    : embedding_typed<uint16_t>)(ids, bytes, first, rows, b, stream);
  });
}

// (ids, dy [ids, columns]) → dweight [rows, columns] of the accumulation dtype of dy.
std::unique_ptr<Kernel> make_cuda_embedding_backward(const KernelRequest& request) {
  const EmbeddingBackwardCall c{.dtype = request.inputs[1].dtype,
                                .ids = request.inputs[0].shape.elements(),
                                .rows = request.outputs[0].shape[0],
                                .columns = request.outputs[0].shape[1],
                                .first = request.attributes.integer("first_row"),
                                .padding_idx = request.attributes.integer("padding_idx", -1),
                                .accumulate = request.accumulate};
  if (c.ids > kMax || c.rows > kMax) return nullptr;
  const DType sums = accumulation_dtype(c.dtype);
  const auto words = static_cast<int64_t>(dtype_size(sums) / 4);
  WorkspaceParts parts;
  parts.add(2 * c.rows + 1 + 2 * c.ids, DType::i32);
  const size_t partial_at = parts.add(2 * divide_up(c.ids, kRun) * c.columns, sums);
  const auto run = [=](const Bindings& b, Stream& s) {
    if (c.rows * c.columns == 0) return;
    const CudaStream stream = s.native();
    const auto* ids = b.input<int32_t>(0);
    auto* counts = static_cast<int32_t*>(b.workspace);
    int32_t* starts = counts + c.rows;
    int32_t* positions = starts + c.rows + 1;
    int32_t* ordered = positions + c.ids;
    launch_fill(4, 0, counts, c.rows, stream);
    const unsigned grid = stride_grid(c.ids > 0 ? c.ids : 1, kBlock);
    DLTRAIN_LAUNCH(count_kernel, grid, kBlock, stream, c, ids, counts);
    DLTRAIN_LAUNCH(start_kernel, 1u, kBlock, stream, counts, starts, c.rows);
    DLTRAIN_LAUNCH(collect_kernel, grid, kBlock, stream, c, ids, counts, positions);
    DLTRAIN_LAUNCH(order_kernel, grid, kBlock, stream, ids, starts, positions, ordered, c.rows,
                   c.first);
    if (!c.accumulate) launch_fill(4, 0, b.outputs[0], c.rows * c.columns * words, stream);
    if (c.ids == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      auto* partial = reinterpret_cast<M*>(static_cast<std::byte*>(b.workspace) + partial_at);
      const auto blocks = static_cast<unsigned>(divide_up(c.ids, kRun));
      DLTRAIN_LAUNCH(add_runs_kernel<T>, blocks, kBlock, stream, b.input<T>(1), ids, starts,
                     ordered, b.output<M>(0), partial, c.rows, c.columns, c.first, c.accumulate);
      DLTRAIN_LAUNCH(join_runs_kernel<M>, blocks, kBlock, stream, ids, starts, ordered,
                     static_cast<const M*>(partial), b.output<M>(0), c.rows, c.columns, c.first,
                     c.accumulate);
    });
  };
  return make_kernel(run, parts.total());
}

}  // namespace dltrain

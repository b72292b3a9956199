// embedding copies rows. Its gradient uses a stable counting sort of the ids, so that one thread
// adds all dy of a row of the weight in the order of the ids: the result does not depend on the
// number of threads.
#include <algorithm>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// The rows of the weight, of which the first is that of id `first`.
struct EmbeddingRows {
  int64_t first, count;
  explicit EmbeddingRows(const KernelRequest& request, const TensorSpec& weight)
      : first(request.attributes.integer("first_row")), count(weight.shape[0]) {}
  bool has(int32_t id) const { return id >= first && id < first + count; }
};

// Sorts the indices of ids by row: those of row r are order[end[r − 1]] … order[end[r] − 1].
void sort_positions(const int32_t* ids, int64_t count, const EmbeddingRows& rows_of_ids,
                    int64_t* end, int64_t* order) {
  const int64_t rows = rows_of_ids.count, first = rows_of_ids.first;
  std::fill_n(end, rows + 1, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (rows_of_ids.has(ids[i])) ++end[ids[i] - first + 1];
  }
  for (int64_t r = 0; r < rows; ++r) end[r + 1] += end[r];
  // end[r] is the start of row r, and is advanced to its end.
  for (int64_t i = 0; i < count; ++i) {
    if (rows_of_ids.has(ids[i])) order[end[ids[i] - first]++] = i;
  }
}

}  // namespace

std::unique_ptr<Kernel> make_embedding(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const TensorSpec& weight = request.inputs[1];
  const int64_t count = request.inputs[0].shape.elements();
  const EmbeddingRows own(request, weight);
  const size_t row_bytes = static_cast<size_t>(weight.shape[1]) * dtype_size(weight.dtype);
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* ids = b.input<int32_t>(0);
    const auto* rows = b.input<std::byte>(1);
    auto* y = b.output<std::byte>(0);
    const int64_t grain = std::max<int64_t>(1, 16384 / static_cast<int64_t>(row_bytes + 1));
    parallel_each(count, grain, [&](int64_t i) {
      std::byte* to = y + static_cast<size_t>(i) * row_bytes;
      if (own.has(ids[i])) {
        std::memcpy(to, rows + static_cast<size_t>(ids[i] - own.first) * row_bytes, row_bytes);
      } else {
        std::memset(to, 0, row_bytes);
      }
    });
  });
}

std::unique_ptr<Kernel> make_embedding_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const int64_t count = request.inputs[0].shape.elements();
  const int64_t rows = request.outputs[0].shape[0], width = request.outputs[0].shape[1];
  const EmbeddingRows own(request, request.outputs[0]);
  const int64_t padding = request.attributes.integer("padding_idx", -1);
  const auto run = [=, accumulate = request.accumulate](const Bindings& b, Stream&) {
    auto* ends = static_cast<int64_t*>(b.workspace);
    int64_t* order = ends + rows + 1;
    sort_positions(b.input<int32_t>(0), count, own, ends, order);
    const float* dy = b.input<float>(1);
    const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, width));
    parallel_each(rows, grain, [&](int64_t row) {
      float* to = b.output<float>(0) + row * width;
      if (!accumulate) std::fill_n(to, width, 0.0f);
      if (row == padding) return;
      for (int64_t k = row == 0 ? 0 : ends[row - 1]; k < ends[row]; ++k) {
        const float* from = dy + order[k] * width;
        for (int64_t i = 0; i < width; ++i) to[i] += from[i];
      }
    });
  };
  return make_kernel(run, static_cast<size_t>(rows + 1 + count) * sizeof(int64_t));
}

}  // namespace dltrain

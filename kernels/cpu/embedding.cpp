// embedding: rows are copied. Its gradient sorts the ids by counting, stably, so that every row of
// the weight belongs to one thread and adds its dy in the order of the ids: the result does not
// depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

class Embedding final : public Kernel {
 public:
  explicit Embedding(const KernelRequest& r)
      : ids_count_(r.inputs[0].shape.elements()),
        row_bytes_(static_cast<size_t>(r.inputs[1].shape[1]) * dtype_size(r.inputs[1].dtype)) {}

  void bind(const Bindings& bindings) override {
    ids_ = input<const int32_t>(bindings, 0);
    weight_ = input<const std::byte>(bindings, 1);
    y_ = output<std::byte>(bindings, 0);
  }

  void run(Stream&) override {
    const int64_t grain = std::max<int64_t>(1, 16384 / static_cast<int64_t>(row_bytes_ + 1));
    parallel_for(ids_count_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(y_ + static_cast<size_t>(i) * row_bytes_,
                    weight_ + static_cast<size_t>(ids_[i]) * row_bytes_, row_bytes_);
      }
    });
  }

 private:
  int64_t ids_count_;
  size_t row_bytes_;
  const int32_t* ids_ = nullptr;
  const std::byte* weight_ = nullptr;
  std::byte* y_ = nullptr;
};

class EmbeddingBackward final : public Kernel {
 public:
  explicit EmbeddingBackward(const KernelRequest& r)
      : ids_count_(r.inputs[0].shape.elements()),
        rows_(r.outputs[0].shape[0]),
        width_(r.outputs[0].shape[1]),
        padding_(r.attributes.integer("padding_idx", -1)),
        accumulate_(r.accumulate) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(rows_ + 1 + ids_count_) * sizeof(int64_t);
  }

  void bind(const Bindings& bindings) override {
    ids_ = input<const int32_t>(bindings, 0);
    dy_ = input<const float>(bindings, 1);
    dweight_ = output<float>(bindings, 0);
    end_ = static_cast<int64_t*>(bindings.workspace);
    order_ = end_ + rows_ + 1;
  }

  void run(Stream&) override {
    sort();
    const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, width_));
    parallel_for(rows_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) sum_row(row);
    });
  }

 private:
  // Places of the ids, grouped by id: those of row r are order_[end_[r − 1]] … order_[end_[r] − 1].
  void sort() const {
    std::fill_n(end_, rows_ + 1, 0);
    for (int64_t i = 0; i < ids_count_; ++i) ++end_[ids_[i] + 1];
    for (int64_t r = 0; r < rows_; ++r) end_[r + 1] += end_[r];
    // end_[r] is where row r begins, and moves to where it ends.
    for (int64_t i = 0; i < ids_count_; ++i) order_[end_[ids_[i]]++] = i;
  }

  void sum_row(int64_t row) const {
    float* to = dweight_ + row * width_;
    if (!accumulate_) std::fill_n(to, width_, 0.0f);
    if (row == padding_) return;
    for (int64_t k = row == 0 ? 0 : end_[row - 1]; k < end_[row]; ++k) {
      const float* from = dy_ + order_[k] * width_;
      for (int64_t i = 0; i < width_; ++i) to[i] += from[i];
    }
  }

  int64_t ids_count_, rows_, width_, padding_;
  bool accumulate_;
  const int32_t* ids_ = nullptr;
  const float* dy_ = nullptr;
  float* dweight_ = nullptr;
  int64_t *end_ = nullptr, *order_ = nullptr;
};

}  // namespace

MadeKernel make_embedding(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<Embedding>(request);
}

MadeKernel make_embedding_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<EmbeddingBackward>(request);
}

}  // namespace dltrain

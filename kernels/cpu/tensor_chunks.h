// Divides lists of tensors of different sizes into chunks of similar work for the threads. The
// chunks depend on the sizes only. They are not stored: the memory is proportional to the number of
// tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/parallel.h"
#include "tensor/shape.h"

namespace dltrain {

struct TensorChunk {
  size_t tensor;
  int64_t begin, count;  // elements
};

inline constexpr int64_t kTensorChunk = 8192;  // elements: 32 KiB of f32

class TensorChunks {
 public:
  explicit TensorChunks(std::span<const TensorSpec> tensors) {
    for (const TensorSpec& tensor : tensors) {
      elements_.push_back(tensor.shape.elements());
      first_.push_back(size_);
      size_ += (elements_.back() + kTensorChunk - 1) / kTensorChunk;
      total_ += elements_.back();
    }
  }

  int64_t size() const { return size_; }

  // Calls f(c, chunk) for all chunks, divided over the threads so that a thread gets at least
  // `elements` on average (many chunks may be tiny).
  template <typename F>
  void parallel(int64_t elements, const F& f) const {
    const int64_t grain = size_ * elements / std::max<int64_t>(1, total_);
    parallel_for(size_, std::max<int64_t>(1, grain),
                 [&](int64_t begin, int64_t end) { for_each(begin, end, f); });
  }

  // Calls f(c, chunk) for the chunks [begin, end), in order.
  template <typename F>
  void for_each(int64_t begin, int64_t end, const F& f) const {
    if (begin >= end) return;
    const auto after = std::upper_bound(first_.begin(), first_.end(), begin);
    auto tensor = static_cast<size_t>(after - first_.begin()) - 1;
    int64_t at = (begin - first_[tensor]) * kTensorChunk;
    for (int64_t c = begin; c < end; ++c, at += kTensorChunk) {
      while (at >= elements_[tensor]) {
        ++tensor;
        at = 0;
      }
      f(c, TensorChunk{tensor, at, std::min(kTensorChunk, elements_[tensor] - at)});
    }
  }

 private:
  std::vector<int64_t> elements_, first_;  // by tensor: its size, and its first chunk
  int64_t size_ = 0, total_ = 0;
};

}  // namespace dltrain

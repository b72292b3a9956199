#include "tensor/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace dltrain {

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  check_internal(dims.size() <= kMaxRank, "a tensor of rank {} (at most {})", dims.size(),
                 kMaxRank);
  for (int64_t d : dims) check_internal(d >= 0, "a negative extent in {}", dims);
  std::copy(dims.begin(), dims.end(), dims_.begin());
  check_size();
}

void Shape::check_size() const {
  int64_t n = 1;
  for (int64_t d : dims()) {
    if (__builtin_mul_overflow(n, std::max<int64_t>(d, 1), &n) || n > kMaxElements) {
      fail(ExitCode::memory, "a tensor of shape {} is too large for any machine", to_string(*this));
    }
  }
}

int64_t Shape::elements() const {
  return elements(0, rank_);
}

int64_t Shape::elements(int first, int last) const {
  int64_t n = 1;
  for (int i = first; i < last; ++i) n *= dims_[i];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::string to_string(const TensorSpec& spec) {
  return fmt::format("{}{}", dtype_name(spec.dtype), to_string(spec.shape));
}

}  // namespace dltrain

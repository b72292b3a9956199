// Reductions of a few numbers of the host over the ranks.
#pragma once

#include <span>

#include "device/collectives.h"

namespace dltrain {

// Reduces int32_t or double values in place over the group of the ranks over host memory; does
// nothing with one rank (nullptr). `subject` describes the numbers in messages.
template <typename T>
void reduce_on_host(Collectives* group, std::span<T> values, ReduceOp op,
                    const OperationSubject& subject) {
  if (group == nullptr) return;
  constexpr DType dtype = std::same_as<T, double> ? DType::f64 : DType::i32;
  HostStream host;
  group->wait(group->all_reduce(values.data(), values.size(), dtype, op, host, subject), host);
}

}  // namespace dltrain

// The state by which two trainings are compared to the bit.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/executor.h"

namespace dltrain {

// The bytes of all state that a checkpoint holds, one tensor after the other.
inline std::vector<std::byte> checkpointed_state(Executor& executor) {
  std::vector<std::byte> out;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    std::vector<std::byte> bytes(tensor.spec.bytes());
    executor.read_state(tensor.name, bytes);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

}  // namespace dltrain

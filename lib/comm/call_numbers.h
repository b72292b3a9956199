// How a group counts its operations: collectives all together, messages for each pair of ranks in
// each direction, so that all ranks of an operation give it the same number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/collectives.h"

namespace dltrain {

// Which one of its kind an operation is, counted from 1; 0: none of the kind.
struct CallNumbers {
  uint64_t collective = 0, sent = 0, received = 0;
};

// Numbers the operations of a group in the order of issue.
class CallCounter {
 public:
  explicit CallCounter(int size)
      : sent_(static_cast<size_t>(size)), received_(static_cast<size_t>(size)) {}

  CallNumbers count(const CollectiveCall& call) {
    if (call.kind != CollectiveKind::message) return {.collective = ++collectives_};
    CallNumbers numbers;
    if (call.sends()) numbers.sent = ++sent_[static_cast<size_t>(call.to)];
    if (call.receives()) numbers.received = ++received_[static_cast<size_t>(call.from)];
    return numbers;
  }

 private:
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;  // to and from each rank
};

}  // namespace dltrain

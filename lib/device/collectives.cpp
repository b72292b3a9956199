#include "device/collectives.h"

#include <fmt/format.h>

namespace dltrain {

const char* collective_name(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "all_to_all", "send",           "receive",    "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const CollectiveCall& call) {
  std::string text = collective_name(call.kind);
  if (call.kind != CollectiveKind::barrier) {
    text += fmt::format(" of {} {}", call.count, dtype_name(call.dtype));
  }
  if (call.kind == CollectiveKind::send) text += fmt::format(" to rank {}", call.peer);
  if (call.kind == CollectiveKind::receive) text += fmt::format(" from rank {}", call.peer);
  return text;
}

}  // namespace dltrain

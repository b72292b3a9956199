#include "base/system_calls.h"

#include <atomic>

namespace dltrain {
namespace {
SystemCalls operating_system;
std::atomic<SystemCalls*> current{&operating_system};
}  // namespace

SystemCalls& system_calls() {
  return *current.load(std::memory_order_acquire);
}

ReplaceSystemCalls::ReplaceSystemCalls(SystemCalls& calls)
    : before_(current.exchange(&calls, std::memory_order_acq_rel)) {}
ReplaceSystemCalls::~ReplaceSystemCalls() {
  current.store(before_, std::memory_order_release);
}

}  // namespace dltrain

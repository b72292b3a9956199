// An engine with one device that refuses to open: exceptions must cross the library's border.
#include "base/error.h"
#include "device/engine.h"

namespace {

const dltrain::Engine kEngine{.name = "fake",
                              .device_count = [] { return 1; },
                              .open = [](int index) -> std::unique_ptr<dltrain::Device> {
                                dltrain::fail(dltrain::ExitCode::device,
                                              "fake:{} is only for tests", index);
                              }};

}  // namespace

extern "C" __attribute__((visibility("default"))) const dltrain::Engine* dltrain_engine(
    uint32_t abi) {
  return abi == dltrain::kEngineAbi ? &kEngine : nullptr;
}

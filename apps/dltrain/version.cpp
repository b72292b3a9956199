#include "base/version.h"

#include <cstdio>

#include "dltrain/commands.h"
#include "ops/kernel.h"

namespace dltrain {

namespace {

// The libraries of the plug-in are known without a driver, the GPU is not.
void print_cuda() {
  std::string why;
  const Engine* built = load_engine_plugin("cuda", why, Driver::not_needed);
  if (built == nullptr) {
#ifdef DLTRAIN_HAS_CUDA_ENGINE
    fmt::print("cuda: the plug-in of this build cannot be opened: {}\n", why);
#else
    fmt::print("cuda: this program was built without the CUDA plug-in ({})\n", why);
#endif
    return;
  }
  const auto device = open_first_gpu(why);
  if (device != nullptr) {
    const DeviceProperties& p = device->properties();
    fmt::print("cuda: {} ({}), {}\n", p.name, p.architecture, p.libraries);
  } else {
    fmt::print("cuda: built with {}; cannot be used: {}\n", built->libraries(), why);
  }
  for (const std::string& line : describe_kernels(*built, device.get())) {
    fmt::print("  {}\n", line);
  }
}

}  // namespace

std::unique_ptr<Device> open_first_gpu(std::string& why) {
  const Engine* cuda = load_engine_plugin("cuda", why);
  if (cuda == nullptr || cuda->device_count() == 0) return nullptr;
  try {
    return cuda->open(0);
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

CommandBody add_version(CLI::App&) {
  return [] {
    fmt::print("dltrain {} ({})\n", version(), git_revision());
    try {
      const auto cpu = engines().cpu->open(0);
      const DeviceProperties& p = cpu->properties();
      fmt::print("cpu: {} ({}), {}\n", p.name, p.architecture, p.libraries);
    } catch (const Error& error) {
      if (error.code() != ExitCode::device) throw;
      fmt::print("cpu: {}\n", error.what());
    }
    print_cuda();
    return ExitCode::ok;
  };
}

}  // namespace dltrain

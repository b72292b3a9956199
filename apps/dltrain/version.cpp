#include "base/version.h"

#include <cstdio>

#include "dltrain/commands.h"

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
  const Engine* cuda = load_engine_plugin("cuda", why);
  if (cuda != nullptr && cuda->device_count() > 0) {
    try {
      const auto device = cuda->open(0);
      const DeviceProperties& p = device->properties();
      fmt::print("cuda: {} ({}), {}\n", p.name, p.architecture, p.libraries);
      return;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  fmt::print("cuda: built with {}; cannot be used: {}\n", built->libraries(), why);
}

}  // namespace

CommandBody add_version(CLI::App&) {
  return [] {
    const auto cpu = engines().cpu->open(0);
    fmt::print("dltrain {} ({})\n", version(), git_revision());
    const DeviceProperties& p = cpu->properties();
    fmt::print("cpu: {} ({}), {}\n", p.name, p.architecture, p.libraries);
    print_cuda();
    return ExitCode::ok;
  };
}

}  // namespace dltrain

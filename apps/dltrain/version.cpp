#include "base/version.h"

#include <cstdio>

#include "dltrain/commands.h"

namespace dltrain {

namespace {

// What the engine was built with is known without a driver, what it runs on is not.
void print_cuda() {
  std::string why;
  const Engine* built = load_engine_plugin("cuda", why, Driver::not_needed);
  if (built == nullptr) {
    fmt::print("cuda: not built, or not installed ({})\n", why);
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
  fmt::print("cuda: built with {}; not usable here: {}\n", built->libraries(), why);
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

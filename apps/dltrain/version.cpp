#include "base/version.h"

#include <cstdio>

#include "dltrain/commands.h"

namespace dltrain {

CommandBody add_version(CLI::App&) {
  return [] {
    const auto cpu = engines().cpu->open(0);
    fmt::print("dltrain {} ({})\n", version(), git_revision());
    const DeviceProperties& p = cpu->properties();
    fmt::print("cpu: {} ({}), {}\n", p.name, p.architecture, p.libraries);
    std::string why;
    const Engine* cuda = load_engine_plugin("cuda", why);
    if (cuda == nullptr || cuda->device_count() == 0) {
      fmt::print("cuda: {}\n", why.empty() ? "no GPU" : why);
    } else {
      try {
        const auto device = cuda->open(0);
        fmt::print("cuda: {} ({}), {}\n", device->properties().name,
                   device->properties().architecture, device->properties().libraries);
      } catch (const Error& error) {
        fmt::print("cuda: {}\n", error.what());
      }
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain

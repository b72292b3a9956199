#include "device/engine.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace dltrain {
namespace {

namespace fs = std::filesystem;

// A CPU run must not load hundreds of MiB of vendor libraries only to find that there is no GPU.
std::string missing_nvidia_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return "no NVIDIA driver (libcuda.so.1) is installed";
  dlclose(driver);
  std::error_code ignored;
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"}) {
    if (fs::exists(node, ignored)) return {};
  }
  return "an NVIDIA driver is installed, but there is no GPU (no /dev/nvidia*)";
}

// The folders of our wheel among Python's packages. Only from there does a path to NVIDIA's wheels
// not depend on the version of Python, so the plug-in of a wheel is there.
std::vector<fs::path> wheel_folders(const fs::path& prefix) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const char* lib : {"lib", "lib64"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / lib, error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      out.push_back(entry.path() / "site-packages" / "dltrain");
      out.push_back(entry.path() / "dist-packages" / "dltrain");
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Searches the plug-in beside the executable (build folder), in ../lib (installed, bundle) and in
// a wheel.
fs::path find_plugin(const std::string& file, std::string& why) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders = wheel_folders(here.parent_path());
  folders.insert(folders.begin(), {here, here.parent_path() / "lib"});
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / file, error)) return folder / file;
  }
  why = fmt::format("{} is neither in {} nor in {}", file, here.string(),
                    (here.parent_path() / "lib").string());
  return {};
}

// dlopen's messages name the missing library; only the first line is useful.
std::string loader_error() {
  const char* text = dlerror();
  const std::string message = text == nullptr ? "unknown error" : text;
  return message.substr(0, message.find('\n'));
}

const Engine* open_plugin(const fs::path& path, std::string& why) {
  // RTLD_LOCAL keeps the plug-in's vendor symbols to itself; it is never closed, because devices
  // and kernels made by it may live as long as the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = fmt::format("{} cannot be loaded: {}", path.filename().string(), loader_error());
    return nullptr;
  }
  const auto entry = reinterpret_cast<EngineEntry>(dlsym(library, kEngineSymbol));
  if (entry == nullptr) {
    why =
        fmt::format("{} is not a dltrain engine (no {})", path.filename().string(), kEngineSymbol);
    return nullptr;
  }
  const Engine* engine = entry(kEngineAbi);
  if (engine == nullptr || engine->abi != kEngineAbi) {
    why = fmt::format("{} belongs to another version of dltrain (this one needs engine ABI {})",
                      path.filename().string(), kEngineAbi);
    return nullptr;
  }
  return engine;
}

}  // namespace

const Engine* load_engine_plugin(const std::string& name, std::string& why, Driver driver) {
  why.clear();
  if (name == "cuda" && driver == Driver::needed) {
    why = missing_nvidia_driver();
    if (!why.empty()) return nullptr;
  }
  const fs::path path = find_plugin("libdltrain_" + name + ".so", why);
  if (path.empty()) return nullptr;
  const Engine* engine = open_plugin(path, why);
  if (engine == nullptr) return nullptr;
  if (driver == Driver::needed && engine->device_count() == 0) {
    why = engine->problem != nullptr ? engine->problem() : "it finds no device";
    return nullptr;
  }
  return engine;
}

bool has_nvidia_gpu() {
  return missing_nvidia_driver().empty();
}

}  // namespace dltrain

#include "cuda/vendor/nvrtc.h"

#include <algorithm>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include "ops/kernel_refused.h"

namespace dltrain {

struct Nvrtc::Functions {
  decltype(&nvrtcVersion) version;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetErrorString) error;
  decltype(&nvrtcGetNumSupportedArchs) architecture_count;
  decltype(&nvrtcGetSupportedArchs) architectures;

  bool load(void* library) {
    const auto get = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return get(version, "nvrtcVersion") && get(create, "nvrtcCreateProgram") &&
           get(destroy, "nvrtcDestroyProgram") && get(compile, "nvrtcCompileProgram") &&
           get(log_size, "nvrtcGetProgramLogSize") && get(log, "nvrtcGetProgramLog") &&
           get(cubin_size, "nvrtcGetCUBINSize") && get(cubin, "nvrtcGetCUBIN") &&
           get(error, "nvrtcGetErrorString") &&
           get(architecture_count, "nvrtcGetNumSupportedArchs") &&
           get(architectures, "nvrtcGetSupportedArchs");
  }
};

const Nvrtc* Nvrtc::find() {
  static const Nvrtc* found = []() -> const Nvrtc* {
    // Must have the runtime's version; never closed.
    const std::string name = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    static Functions functions;
    int major = 0, minor = 0;
    if (library == nullptr || !functions.load(library) ||
        functions.version(&major, &minor) != NVRTC_SUCCESS) {
      return nullptr;
    }
    static const Nvrtc instance(functions, fmt::format("{}.{}", major, minor));
    return &instance;
  }();
  return found;
}

std::string Nvrtc::missing(int architecture) {
  const Nvrtc* nvrtc = find();
  if (nvrtc == nullptr) return fmt::format("no libnvrtc.so.{}", CUDART_VERSION / 1000);
  if (architecture == 0) return "";
  int count = 0;
  (void)nvrtc->functions_.architecture_count(&count);
  std::vector<int> known(static_cast<size_t>(count));
  (void)nvrtc->functions_.architectures(known.data());
  return std::find(known.begin(), known.end(), architecture) != known.end()
             ? ""
             : fmt::format("NVRTC {} does not know sm_{}", nvrtc->version_, architecture);
}

std::string Nvrtc::compile(const std::string& source, std::span<const SourceHeader> headers,
                           int architecture) const {
  std::vector<const char*> texts, names;
  for (const SourceHeader& header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  nvrtcProgram program = nullptr;
  const auto check = [&](nvrtcResult result, const char* what) {
    if (result == NVRTC_SUCCESS) return;
    std::string log;
    size_t bytes = 0;
    if (program != nullptr && functions_.log_size(program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
      log.resize(bytes);
      (void)functions_.log(program, log.data());
    }
    (void)functions_.destroy(&program);
    throw KernelRefused(ExitCode::internal,
                        fmt::format("NVRTC: {}: {}\n{}", what, functions_.error(result), log));
  };
  check(functions_.create(&program, source.c_str(), "fused.cu", static_cast<int>(texts.size()),
                          texts.data(), names.data()),
        "making a program");
  const std::string target = fmt::format("--gpu-architecture=sm_{}", architecture);
  // Constexpr functions of shared headers have no __device__ attribute.
  const char* options[] = {target.c_str(), "--std=c++20", "-default-device"};
  check(functions_.compile(program, 3, options), "compiling a program");
  size_t bytes = 0;
  check(functions_.cubin_size(program, &bytes), "reading the code");
  std::string code(bytes, '\0');
  check(functions_.cubin(program, code.data()), "reading the code");
  (void)functions_.destroy(&program);
  return code;
}

}  // namespace dltrain

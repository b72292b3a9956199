#include "cuda/vendor/nvrtc.h"

#include <algorithm>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include "cuda/vendor/check.h"
#include "ops/kernel_refused.h"

namespace dltrain {

struct Nvrtc::Functions {
  // Must have the runtime's version.
  OpenedLibrary library{
      dlopen(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000).c_str(), RTLD_NOW | RTLD_LOCAL)};
  DLTRAIN_LIBRARY_FUNCTION(version, nvrtcVersion);
  DLTRAIN_LIBRARY_FUNCTION(create, nvrtcCreateProgram);
  DLTRAIN_LIBRARY_FUNCTION(destroy, nvrtcDestroyProgram);
  DLTRAIN_LIBRARY_FUNCTION(compile, nvrtcCompileProgram);
  DLTRAIN_LIBRARY_FUNCTION(log_size, nvrtcGetProgramLogSize);
  DLTRAIN_LIBRARY_FUNCTION(log, nvrtcGetProgramLog);
  DLTRAIN_LIBRARY_FUNCTION(cubin_size, nvrtcGetCUBINSize);
  DLTRAIN_LIBRARY_FUNCTION(cubin, nvrtcGetCUBIN);
  DLTRAIN_LIBRARY_FUNCTION(error, nvrtcGetErrorString);
  DLTRAIN_LIBRARY_FUNCTION(architecture_count, nvrtcGetNumSupportedArchs);
  DLTRAIN_LIBRARY_FUNCTION(architectures, nvrtcGetSupportedArchs);
};

const Nvrtc* Nvrtc::find() {
  static const Nvrtc* found = []() -> const Nvrtc* {
    static Functions functions;
    int major = 0, minor = 0;
    if (!functions.library.complete || functions.version(&major, &minor) != NVRTC_SUCCESS) {
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

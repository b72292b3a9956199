// fused_elementwise by programs that are generated and compiled for the current GPU when the plan
// is made. Without NVRTC, or for a GPU that it does not support, the interpreter runs the program.
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "cuda/fused_operands.h"
#include "cuda/fused_source.h"
#include "cuda/launch.h"
#include "cuda/makers.h"
#include "cuda/vendor/check.h"
#include "cuda/vendor/code_cache.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/nvrtc.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;
constexpr const char* kName = "dltrain_fused";

// Returns everything that the code depends on.
std::string key_of_nvrtc_fused(const std::string& source, const std::string& compiler,
                               int architecture) {
  std::string key = fmt::format("NVRTC {}, sm_{}\n{}", compiler, architecture, source);
  for (const SourceHeader& header : fused_source_headers()) {
    key += fmt::format("\n== {}\n{}", header.name, header.text);
  }
  return key;
}

// Returns the kernel of a program, compiled once per process. Its library is never unloaded, since
// kernels may live as long as the process.
cudaKernel_t kernel_of(const Nvrtc& nvrtc, const std::string& source, int architecture) {
  static std::mutex mutex;
  static std::map<std::string, cudaKernel_t> known;
  const std::string key = key_of_nvrtc_fused(source, nvrtc.version(), architecture);
  const std::lock_guard lock(mutex);
  if (const auto at = known.find(key); at != known.end()) return at->second;
  const std::string code = cached_code(cache_folder(), key, [&] {
    return nvrtc.compile(source, fused_source_headers(), architecture);
  });
  cudaLibrary_t library = nullptr;
  cudaError_t result =
      cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  cudaKernel_t kernel = nullptr;
  if (result == cudaSuccess) result = cudaLibraryGetKernel(&kernel, library, kName);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    throw KernelRefused(ExitCode::device, std::string("CUDA: loading a compiled program: ") +
                                              cudaGetErrorString(result));
  }
  return known[key] = kernel;
}

void run_program(cudaKernel_t kernel, int64_t count, int64_t pack, const Bindings& b,
                 Stream& stream) {
  FusedOperands operands{};
  operands.output = b.outputs[0];
  bool aligned = reinterpret_cast<uintptr_t>(operands.output) % 16 == 0;
  for (size_t i = 0; i < b.inputs.size(); ++i) {
    operands.input[i] = b.inputs[i];
    aligned = aligned && reinterpret_cast<uintptr_t>(b.inputs[i]) % 16 == 0;
  }
  int64_t packs = aligned ? count / pack : 0;
  void* arguments[] = {&operands, &packs, &count};
  check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                              dim3(stride_grid(packs > 0 ? packs : count, kBlock)), dim3(kBlock),
                              arguments, 0, native_stream(stream)),
             "a compiled program");
}

}  // namespace

std::string nvrtc_missing(Device* device) {
  const auto* cuda = dynamic_cast<const CudaDevice*>(device);
  return Nvrtc::missing(cuda == nullptr ? 0 : cuda->architecture());
}

std::unique_ptr<Kernel> make_nvrtc_fused(const KernelRequest& request) {
  FusedTypes types{{}, request.outputs[0].dtype};
  for (const TensorSpec& spec : request.inputs) types.inputs.push_back(spec.dtype);
  CudaDevice& device = cuda_device(request);
  if (!is_floating(types.result) || request.inputs.size() > FusedOperands::kMax) return nullptr;
  if (const std::string why = nvrtc_missing(&device); !why.empty()) {
    throw KernelRefused(ExitCode::device, why);
  }
  const auto steps = parse_fused_program(request.attributes.text("program"));
  const std::string source = fused_source(steps, types, kName);
  return make_kernel([kernel = kernel_of(*Nvrtc::find(), source, device.architecture()),
                      count = request.inputs[0].shape.elements(),
                      pack = fused_pack(types)](const Bindings& b, Stream& stream) {
    if (count > 0) run_program(kernel, count, pack, b, stream);
  });
}

}  // namespace dltrain

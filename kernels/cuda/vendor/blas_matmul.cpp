// matmul, matmul_gelu, matmul_gelu_backward and fp8_matmul by cuBLASLt. The library is
// column-major, so it computes the transposed product yᵀ = op(b)ᵀ·op(a)ᵀ: row-major matrices are
// its transposed matrices in memory. For FP8 (sm_89 and newer) the sum must be along the last axis
// of both operands, and scales lie in device memory: one for each operand, for blocks of 128 or
// 128 x 128 codes (sm_90), or for 32 codes (sm_100 and newer); CUBLASLT_MATMUL_DESC_FAST_ACCUM
// stays 0, the more precise way.
//
// f32 runs in plain f32, or with attribute math: tf32 on the tensor cores of sm_80 and newer;
// products of bf16 and f16 are added in f32, and the result has either dtype. The algorithm is
// chosen once by cuBLASLt's heuristic among those that add partial sums in the compute type, or
// with autotune by timing several of these; its workspace is in the plan's arena. Bias, ReLU and
// gelu_tanh are epilogues of the product (cuBLASLt's GELU is the tanh form); a separate kernel
// applies other activations in place.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "cuda/elementwise.h"
#include "cuda/makers.h"
#include "cuda/matmul_sizes.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/check.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr size_t kBlasMatmulMaxWorkspace = size_t{32} << 20;
// The alignment of every operand, in bytes; the arena aligns to more.
constexpr uint32_t kBlasMatmulAlignment = 16;

using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using BlasMatmulLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The epilogue, and the activation applied after it.
struct Epilogue {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  ElementwiseOp after = ElementwiseOp::identity;  // applied by a separate kernel

  // It writes or reads x of GELU: the library's auxiliary matrix.
  bool has_x() const {
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
  }
};

bool is_fp8(const KernelRequest& request) {
  return request.op == "fp8_matmul";
}

Epilogue epilogue_of(const KernelRequest& request, bool has_bias) {
  if (request.op == "matmul_gelu_backward") return {.epilogue = CUBLASLT_EPILOGUE_DGELU};
  if (request.op == "matmul_gelu") {
    return {.epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX};
  }
  const std::string activation = request.attributes.text("activation");
  if (activation == "relu") {
    return {.epilogue = has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU};
  }
  if (activation == "gelu_tanh") {
    return {.epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU};
  }
  const auto after = elementwise_op(activation.empty() ? "identity" : activation);
  check_internal(after.has_value(), "matmul: activation {}", activation);
  return {.epilogue = has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
          .after = *after};
}

cudaDataType_t library_type_blas_matmul(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// Returns the type of operand a or b. `format`: of its FP8 codes.
cudaDataType_t operand_type(const KernelRequest& request, size_t operand, const char* format) {
  if (!is_fp8(request)) return library_type_blas_matmul(request.inputs[operand].dtype);
  return request.attributes.text(format) == "e4m3" ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

#if CUBLAS_VERSION >= 120900
cublasLtMatmulMatrixScale_t scale_mode(const std::vector<int64_t>& block) {
  if (block.empty()) return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (block[1] == 32) return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  return block[0] == 1 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                       : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}
#endif

BlasMatmulLayout column_major(cudaDataType_t type, int64_t rows, int64_t columns) {
  BlasMatmulLayout layout;
  check_cublas(cublasLtMatrixLayoutCreate(layout.out(), type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows),
               "describing a matrix");
  return layout;
}

class BlasMatmul final : public Kernel {
 public:
  explicit BlasMatmul(const KernelRequest& request)
      : device_(cuda_device(request)),
        sizes_(request),
        beta_(request.accumulate ? 1.0f : 0.0f),
        ending_(epilogue_of(request, sizes_.has_bias)),
        fp8_(is_fp8(request)),
        in_a_(operand_type(request, 0, "format_a")),
        in_b_(operand_type(request, 1, "format_b")),
        out_(request.outputs[0].dtype),
        tf32_(in_a_ == CUDA_R_32F && rounds_to_tf32(request.attributes)) {
    const cublasComputeType_t compute = tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_cublas(cublasLtMatmulDescCreate(operation_.out(), compute, CUDA_R_32F),
                 "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, sizes_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, sizes_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, ending_.epilogue);
    if (ending_.has_x()) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, sizes_.n);
#if CUBLAS_VERSION >= 120900
    if (fp8_) {  // the library's A is b
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(request.attributes.integers("block_b")));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(request.attributes.integers("block_a")));
    }
#endif
    for (const char* name : {"block_a", "block_b"}) {
      const auto block = request.attributes.integers(name);
      if (!block.empty()) blocks_ += fmt::format(" by {}x{}", block[0], block[1]);
    }
    b_ = sizes_.transpose_b ? column_major(in_b_, sizes_.k, sizes_.n)
                            : column_major(in_b_, sizes_.n, sizes_.k);
    a_ = sizes_.transpose_a ? column_major(in_a_, sizes_.m, sizes_.k)
                            : column_major(in_a_, sizes_.k, sizes_.m);
    y_ = column_major(library_type_blas_matmul(out_), sizes_.n, sizes_.m);
  }

  // Throws KernelRefused if cuBLASLt has no algorithm for these sizes.
  void choose_algorithm(const KernelRequest& request) {
    Preference preference;
    check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "describing preferences");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
                   "describing preferences");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kBlasMatmulMaxWorkspace});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(name, kBlasMatmulAlignment);
    }
    // The library asks for the alignment of these addresses only, and reads nothing there.
    if (sizes_.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t{kBlasMatmulAlignment});
    if (ending_.has_x()) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, uintptr_t{kBlasMatmulAlignment});
    }
    if (fp8_) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, uintptr_t{kBlasMatmulAlignment});
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, uintptr_t{kBlasMatmulAlignment});
    }
    const int wanted = static_cast<int>(tuning_limits(device_.tuning().mode).candidates);
    std::vector<cublasLtMatmulHeuristicResult_t> proposed(static_cast<size_t>(wanted));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        device_.blas(), operation_, b_, a_, y_, y_, preference, wanted, proposed.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS) found = 0;
    std::erase_if(proposed, [](const auto& p) { return p.state != CUBLAS_STATUS_SUCCESS; });
    proposed.resize(std::min(proposed.size(), static_cast<size_t>(found)));
    if (proposed.empty()) {
      throw KernelRefused(ExitCode::device, fmt::format("cuBLASLt: choosing an algorithm: {}",
                                                        status == CUBLAS_STATUS_SUCCESS
                                                            ? "none is proposed"
                                                            : cublasLtGetStatusString(status)));
    }
    algorithm_ = proposed.size() == 1 ? proposed[0] : timed(request, proposed);
  }

  size_t workspace_bytes() const override {
    return algorithm_.workspaceSize;
  }

  void run(const Bindings& bindings, Stream& stream) const override {
    const void *a = bindings.inputs[0], *b = bindings.inputs[1];
    void* y = bindings.outputs[0];
    const void* bias = sizes_.has_bias ? bindings.inputs[fp8_ ? 4 : 2] : nullptr;
    const void* x = !ending_.has_x()                              ? nullptr
                    : ending_.epilogue == CUBLASLT_EPILOGUE_DGELU ? bindings.inputs[2]
                                                                  : bindings.outputs[1];
    for (const void* pointer : {a, b, static_cast<const void*>(y), bias, x}) {
      check_internal(reinterpret_cast<uintptr_t>(pointer) % kBlasMatmulAlignment == 0,
                     "matmul: an operand is not aligned to {} bytes", kBlasMatmulAlignment);
    }
    // The library takes these addresses from the description of the product.
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (x != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x);
    if (fp8_) {  // the library's A is b
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, bindings.inputs[3]);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, bindings.inputs[2]);
    }
    const float alpha = 1;
    check_cublas(cublasLtMatmul(device_.blas(), operation_, &alpha, b, b_, a, a_, &beta_, y, y_, y,
                                y_, &algorithm_.algo, bindings.workspace, algorithm_.workspaceSize,
                                native_stream(stream)),
                 "matmul");
    if (ending_.after != ElementwiseOp::identity) {
      launch_bias_activation(ending_.after, out_, nullptr, y, sizes_.m, sizes_.n, stream.native());
    }
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t name, const T& value) const {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_, name, &value, sizeof value),
                 "describing a product");
  }

  // Returns all parameters that determine the available algorithms and their speed.
  std::string key() const {
    const auto name = [](cudaDataType_t type) {
      return type == CUDA_R_16BF      ? "bf16"
             : type == CUDA_R_16F     ? "f16"
             : type == CUDA_R_8F_E4M3 ? "e4m3"
             : type == CUDA_R_8F_E5M2 ? "e5m2"
                                      : "f32";
    };
    const std::string in = fp8_    ? fmt::format("{} {}{}", name(in_a_), name(in_b_), blocks_)
                           : tf32_ ? "tf32"
                                   : name(in_a_);
    return fmt::format("matmul {}x{}x{} {}{} {} to {}, epilogue {}, beta {}", sizes_.m, sizes_.n,
                       sizes_.k, sizes_.transpose_a ? 'T' : 'N', sizes_.transpose_b ? 'T' : 'N', in,
                       dtype_name(out_), static_cast<int>(ending_.epilogue), beta_);
  }

  // Returns the fastest proposal, as timed now, in an earlier run or on another rank; the first
  // proposal without a choice, or if it does not fit this library.
  cublasLtMatmulHeuristicResult_t timed(
      const KernelRequest& request, const std::vector<cublasLtMatmulHeuristicResult_t>& proposed) {
    cublasLtMatmulHeuristicResult_t chosen{};
    const std::string bytes = tuned_choice(device_, key(), [&]() -> std::string {
      const auto candidate = [&](size_t i) {
        auto kernel = std::make_unique<BlasMatmul>(request);
        kernel->algorithm_ = proposed[i];
        return kernel;
      };
      const std::optional<size_t> best =
          fastest_kernel(device_, request.inputs, request.outputs, proposed.size(), candidate);
      if (!best) return {};
      const cublasLtMatmulAlgo_t& algorithm = proposed[*best].algo;
      return {reinterpret_cast<const char*>(&algorithm), sizeof algorithm};
    });
    if (bytes.size() != sizeof chosen.algo) return proposed[0];
    std::memcpy(&chosen.algo, bytes.data(), sizeof chosen.algo);
    const cublasLtMatmulAlgo_t algorithm = chosen.algo;
    const bool usable = cublasLtMatmulAlgoCheck(device_.blas(), operation_, b_, a_, y_, y_,
                                                &algorithm, &chosen) == CUBLAS_STATUS_SUCCESS &&
                        chosen.workspaceSize <= kBlasMatmulMaxWorkspace;
    chosen.algo = algorithm;
    return usable ? chosen : proposed[0];
  }

  CudaDevice& device_;
  MatmulSizes sizes_;
  float beta_;
  Epilogue ending_;
  bool fp8_;
  std::string blocks_ = {};  // of FP8, for key()
  cudaDataType_t in_a_, in_b_;
  DType out_;
  bool tf32_;
  Operation operation_;
  BlasMatmulLayout a_, b_, y_;
  cublasLtMatmulHeuristicResult_t algorithm_{};
};

}  // namespace

std::unique_ptr<Kernel> make_blas_matmul(const KernelRequest& request) {
  const DType in = request.inputs[0].dtype, out = request.outputs[0].dtype;
  const bool narrow = is_low_precision(in);
  const MatmulSizes s(request);
  if (is_fp8(request)) {
    const bool fits = s.n % 16 == 0 && s.k % 16 == 0 && s.m * s.n * s.k > 0;
    const bool biased = s.has_bias && (request.inputs[4].dtype != out || out == DType::f32);
    const DeviceProperties& device = cuda_device(request).properties();
    const auto block = request.attributes.integers("block_a");
    const bool can = block.empty() ? device.has_fp8 : device.fp8_block == block[1];
    if (!can || !fits || biased) return nullptr;
    // cuBLASLt takes scales of 128 codes only if the number of rows is a multiple of 4, and scales
    // of 32 codes only if the number of columns is a multiple of 32.
    const int64_t size = block.empty() ? 0 : block[1];
    if ((size == 128 && s.m % 4 != 0) || (size == 32 && s.k % 32 != 0)) {
      throw KernelRefused(
          ExitCode::device,
          fmt::format("scales of {} codes for {} rows and {} columns", size, s.m, s.k));
    }
    auto kernel = std::make_unique<BlasMatmul>(request);
    kernel->choose_algorithm(request);
    return kernel;
  }
  if ((in != DType::f32 && !narrow) || (out != in && out != DType::f32)) return nullptr;
  if (s.has_bias && out != in) return nullptr;  // the library needs a bias of the result's dtype
  // GELU in f32 would be another function: the library's tanh is approximate. Rows of x begin at
  // multiples of 16 bytes.
  if (request.op != "matmul" && (!narrow || out != in || s.n % 8 != 0)) return nullptr;
  const bool activated = !request.attributes.text("activation").empty();
  if (s.m * s.n * s.k == 0 || (activated && request.accumulate)) return nullptr;
  if (rounds_to_tf32(request.attributes) && cuda_device(request).architecture() < 80)
    return nullptr;
  auto kernel = std::make_unique<BlasMatmul>(request);
  kernel->choose_algorithm(request);
  return kernel;
}

}  // namespace dltrain

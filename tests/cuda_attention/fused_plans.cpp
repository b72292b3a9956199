// Convolutions fused with parts of a batch norm have plans on GPUs that are only described. cuDNN
// compiles those in bf16 itself and asks for a driver: stub/driver.cpp is loaded in its place.
#include <dlfcn.h>

#include "catch.h"
#include "cuda/vendor/cudnn_plan.h"
#include "cuda_engine/described.h"

namespace dltrain {
namespace {

// Of ResNet-50 on 64 square images.
struct Convolution {
  const char* name;
  int64_t in, in_channels, out, out_channels, kernel, stride, padding;
};
constexpr Convolution kConvolutions[] = {{"stem", 224, 3, 112, 64, 7, 2, 3},
                                         {"3 by 3", 56, 64, 56, 64, 3, 1, 1},
                                         {"expand", 56, 64, 56, 256, 1, 1, 0}};

ConvolutionProblem problem(const Convolution& c, DType dtype) {
  return {.dtype = dtype,
          .samples = 64,
          .in = {c.in, c.in},
          .out = {c.out, c.out},
          .in_channels = c.in_channels,
          .out_channels = c.out_channels,
          .kernel = {c.kernel, c.kernel},
          .stride = {c.stride, c.stride},
          .padding = {c.padding, c.padding},
          .dilation = {1, 1}};
}

// Calls check(problem, target) for every GPU, convolution and 16-bit format.
template <typename F>
void for_each_problem(const F& check) {
  REQUIRE(dlopen(DLTRAIN_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL) != nullptr);
  for (const char* gpu : {"a100", "h200"}) {
    const CudnnDescriptor description = describe_gpu(gpu_description(gpu));
    const CudnnTarget target{.description = &description};
    for (const Convolution& c : kConvolutions) {
      for (const DType dtype : {DType::bf16, DType::f16}) {
        INFO(gpu << ", " << c.name << ", " << dtype_name(dtype));
        check(problem(c, dtype), target);
      }
    }
  }
}

TEST_CASE("convolutions with the sums of the batch norm after them have deterministic plans") {
  for_each_problem([](const ConvolutionProblem& p, const CudnnTarget& target) {
    CHECK(propose_convolution_sums(p, target).build_first().has_value());
  });
}

TEST_CASE("convolutions with a batch norm by given statistics have deterministic plans") {
  for_each_problem([](const ConvolutionProblem& p, const CudnnTarget& target) {
    for (const NormEnding ending :
         {NormEnding{.relu = true}, NormEnding{.residual = true, .relu = true}}) {
      INFO("residual " << ending.residual << ", relu " << ending.relu);
      CHECK(propose_convolution_norm(p, ending, target).build_first().has_value());
    }
  });
}

}  // namespace
}  // namespace dltrain

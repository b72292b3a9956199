// Every convolution of the op cases and of the vision models has a cuDNN plan that follows our
// rules, for GPUs that are only described: no GPU and no driver is needed.
#include <cmath>

#include "catch.h"
#include "cuda/vendor/cudnn_convolution.h"
#include "cuda_engine/described.h"
#include "ops/case.h"

namespace dltrain {
namespace {

ConvolutionProblem problem(const Shape& x, const Shape& w, const Conv2dAttributes& attributes) {
  return {Conv2dSizes(x, w, conv2d_output_shape(x, w, attributes), attributes)};
}

bool has_plan(const ConvolutionProblem& problem, const CudnnDescriptor& gpu) {
  const CudnnTarget target{.description = &gpu};
  return propose_convolution(problem, target).build_first().has_value();
}

struct Convolution {
  std::string name;
  ConvolutionProblem problem;
};

std::vector<Convolution> convolutions() {
  std::vector<Convolution> out;
  for (const OpCase& c : op_cases()) {
    if (c.op != "conv2d") continue;
    out.push_back({c.name, problem(c.inputs[0].spec.shape, c.inputs[1].spec.shape,
                                   Conv2dAttributes(c.attributes))});
  }
  const Conv2dAttributes same({{"padding", std::vector<int64_t>{1, 1}}});
  const Conv2dAttributes lenet({{"padding", std::vector<int64_t>{2, 2}}});
  const Conv2dAttributes plain({});
  out.push_back({"digits, first", problem(Shape{64, 8, 8, 1}, Shape{16, 3, 3, 1}, same)});
  out.push_back({"digits, second", problem(Shape{64, 8, 8, 16}, Shape{32, 3, 3, 16}, same)});
  out.push_back({"LeNet, first", problem(Shape{64, 28, 28, 1}, Shape{6, 5, 5, 1}, lenet)});
  out.push_back({"LeNet, second", problem(Shape{64, 14, 14, 6}, Shape{16, 5, 5, 6}, plain)});
  return out;
}

// The convolutions of ResNet-50 on images of 224 by 224: its stem and each kind in its stages.
std::vector<Convolution> resnet() {
  const Conv2dAttributes plain({});
  const Conv2dAttributes stem(
      {{"padding", std::vector<int64_t>{3, 3}}, {"stride", std::vector<int64_t>{2, 2}}});
  const Conv2dAttributes same({{"padding", std::vector<int64_t>{1, 1}}});
  const Conv2dAttributes half(
      {{"padding", std::vector<int64_t>{1, 1}}, {"stride", std::vector<int64_t>{2, 2}}});
  const Conv2dAttributes skip({{"stride", std::vector<int64_t>{2, 2}}});
  return {{"stem", problem(Shape{64, 224, 224, 3}, Shape{64, 7, 7, 3}, stem)},
          {"reduce", problem(Shape{64, 56, 56, 256}, Shape{64, 1, 1, 256}, plain)},
          {"3 by 3", problem(Shape{64, 56, 56, 64}, Shape{64, 3, 3, 64}, same)},
          {"expand", problem(Shape{64, 56, 56, 64}, Shape{256, 1, 1, 64}, plain)},
          {"3 by 3, stride 2", problem(Shape{64, 56, 56, 128}, Shape{128, 3, 3, 128}, half)},
          {"shortcut", problem(Shape{64, 14, 14, 1024}, Shape{2048, 1, 1, 1024}, skip)},
          {"last", problem(Shape{64, 7, 7, 512}, Shape{512, 3, 3, 512}, same)}};
}

TEST_CASE("every convolution of ResNet-50 has a deterministic 16-bit cuDNN plan") {
  for (const char* gpu : {"a100", "h200"}) {
    const CudnnDescriptor description = describe_gpu(gpu_description(gpu));
    for (Convolution c : resnet()) {
      for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const auto pass :
             {ConvolutionPass::forward, ConvolutionPass::input, ConvolutionPass::weight}) {
          c.problem.pass = pass;
          c.problem.dtype = dtype;
          INFO(gpu << ", " << c.name << ", " << dtype_name(dtype) << ", pass "
                   << static_cast<int>(pass));
          CHECK(has_plan(c.problem, description));
        }
      }
    }
  }
}

TEST_CASE("every convolution has a deterministic f32 cuDNN plan on Ampere and Hopper") {
  for (const char* gpu : {"a100", "h200"}) {
    const CudnnDescriptor description = describe_gpu(gpu_description(gpu));
    for (Convolution c : convolutions()) {
      for (const auto pass :
           {ConvolutionPass::forward, ConvolutionPass::input, ConvolutionPass::weight}) {
        c.problem.pass = pass;
        INFO(gpu << ", " << c.name << ", pass " << static_cast<int>(pass));
        CHECK(has_plan(c.problem, description));
      }
    }
  }
}

}  // namespace
}  // namespace dltrain

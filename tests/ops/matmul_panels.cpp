// The CPU engine's own matmul against oneDNN's on sizes that are too slow for the reference.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "catch.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/matmul_tiles.h"
#include "max_or_inf.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

std::vector<float> numbers(const char* name, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = 2 * random_uniform(1, random_stream(name), 0, i) - 1;
  }
  return out;
}

// Returns the results of our own kernel and of oneDNN's, and the larger of their workspaces.
template <typename T>
std::vector<std::vector<T>> by_both(const Attributes& attributes,
                                    const std::vector<TensorSpec>& inputs,
                                    const std::vector<TensorSpec>& outputs,
                                    const std::vector<void*>& in,
                                    size_t* most_workspace = nullptr) {
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  std::vector<std::vector<T>> results;
  for (KernelMaker make : {make_matmul_panels, make_matmul_onednn}) {
    auto kernel = make({.op = "matmul",
                        .attributes = attributes,
                        .inputs = inputs,
                        .outputs = outputs,
                        .device = *device});
    REQUIRE(kernel != nullptr);
    const size_t bytes = kernel->workspace_bytes();
    if (most_workspace != nullptr) *most_workspace = std::max(*most_workspace, bytes);
    results.emplace_back(static_cast<size_t>(outputs[0].shape.elements()));
    std::vector<float> workspace(bytes / sizeof(float) + 1);
    const std::vector<void*> out{results.back().data()};
    BoundCall(*kernel, in, out, workspace.data()).run(*stream);
  }
  return results;
}

TEST_CASE("a product of several chunks of columns is that of oneDNN") {
  if (matmul_functions(DType::f32) == nullptr) {
    WARN("Skipped: without AVX-512 oneDNN computes it anyway");
    return;
  }
  const bool transposed = GENERATE(false, true);
  const int64_t m = 600, k = 700, n = 5003;
  const Attributes attributes{{"transpose_a", true}, {"transpose_b", transposed}};
  const std::vector<TensorSpec> inputs{{Shape{k, m}, DType::f32},
                                       {transposed ? Shape{n, k} : Shape{k, n}, DType::f32},
                                       {Shape{n}, DType::f32}};
  const std::vector<TensorSpec> outputs{{Shape{m, n}, DType::f32}};
  auto a = numbers("a", m * k), b = numbers("b", k * n), bias = numbers("bias", n);
  const std::vector<void*> in{a.data(), b.data(), bias.data()};
  const auto results = by_both<float>(attributes, inputs, outputs, in);
  double worst = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    worst = max_or_inf(worst, std::abs(results[0][i] - results[1][i]));
  }
  CHECK(worst < 1e-4F);  // sums of 700 products of numbers below 1
}

TEST_CASE("a wide product in bf16 of several blocks adds up in little memory") {
  if (matmul_functions(DType::bf16) == nullptr) {
    WARN("Skipped: without AVX-512 for bf16 oneDNN computes it anyway");
    return;
  }
  const int64_t m = 512, k = 768, n = 9001;  // as the logits of a language model
  const Attributes attributes{{"transpose_b", true}};
  const std::vector<TensorSpec> inputs{{Shape{m, k}, DType::bf16}, {Shape{n, k}, DType::bf16}};
  const std::vector<TensorSpec> outputs{{Shape{m, n}, DType::bf16}};
  const auto rounded = [](const std::vector<float>& from) {
    std::vector<Bf16> out(from.size());
    for (size_t i = 0; i < out.size(); ++i) from_f32(from[i], out[i]);
    return out;
  };
  auto a = rounded(numbers("a", m * k)), b = rounded(numbers("b", n * k));
  const std::vector<void*> in{a.data(), b.data()};
  size_t workspace = 0;
  const auto results = by_both<Bf16>(attributes, inputs, outputs, in, &workspace);
  CHECK(workspace < static_cast<size_t>(m * n) * sizeof(float));
  double worst = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const float x = to_f32(results[0][i]), y = to_f32(results[1][i]);
    worst = max_or_inf(worst, std::abs(x - y) / std::max(1.0F, std::abs(y)));
  }
  CHECK(worst < 0x1p-7F);  // one unit of bf16's last place
}

}  // namespace
}  // namespace dltrain

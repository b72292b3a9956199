// The CPU engine's own matmul against oneDNN's on sizes that are too slow for the reference.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "catch.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/matmul_tiles.h"

namespace dltrain {
namespace {

std::vector<float> numbers(const char* name, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = 2 * random_uniform(1, random_stream(name), 0, i) - 1;
  }
  return out;
}

TEST_CASE("a product of several chunks of columns is that of oneDNN") {
  if (matmul_functions(DType::f32) == nullptr) return;  // no AVX-512: oneDNN computes it anyway
  const bool transposed = GENERATE(false, true);
  const int64_t m = 600, k = 700, n = 5003;
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  const Attributes attributes{{"transpose_a", true}, {"transpose_b", transposed}};
  const std::vector<TensorSpec> inputs{{Shape{k, m}, DType::f32},
                                       {transposed ? Shape{n, k} : Shape{k, n}, DType::f32},
                                       {Shape{n}, DType::f32}};
  const std::vector<TensorSpec> outputs{{Shape{m, n}, DType::f32}};
  auto a = numbers("a", m * k), b = numbers("b", k * n), bias = numbers("bias", n);
  std::vector<std::vector<float>> results;
  for (KernelMaker make : {make_matmul_panels, make_matmul_onednn}) {
    auto kernel = make({.op = "matmul",
                        .attributes = attributes,
                        .inputs = inputs,
                        .outputs = outputs,
                        .device = *device});
    REQUIRE(kernel != nullptr);
    results.emplace_back(static_cast<size_t>(m * n));
    std::vector<float> workspace(kernel->workspace_bytes() / sizeof(float) + 1);
    const std::vector<void*> in{a.data(), b.data(), bias.data()}, out{results.back().data()};
    kernel->bind({.inputs = in, .outputs = out, .workspace = workspace.data()});
    kernel->run(*stream);
  }
  float worst = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    worst = std::max(worst, std::abs(results[0][i] - results[1][i]));
  }
  CHECK(worst < 1e-4F);  // sums of 700 products of numbers below 1
}

}  // namespace
}  // namespace dltrain

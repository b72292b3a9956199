// The CPU engine's own matmul against oneDNN's on sizes that are too slow for the reference.
#include <algorithm>
#include <cmath>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/philox.h"
#include "catch.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/matmul_tiles.h"
#include "cpu/processor.h"
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

std::vector<float> widened(const std::vector<Bf16>& from) {
  std::vector<float> out(from.size());
  std::ranges::transform(from, out.begin(), [](Bf16 x) { return to_f32(x); });
  return out;
}

// Returns the result of the kernel of `make`, and the bytes of its workspace. `specs`: of the
// operands and the result.
template <typename T>
std::pair<std::vector<T>, size_t> product(KernelMaker make, const Attributes& attributes,
                                          const std::vector<TensorSpec>& specs,
                                          std::vector<std::vector<T>> operands) {
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  const SpecList inputs(specs.begin(), specs.end() - 1), outputs(specs.end() - 1, specs.end());
  const auto kernel = make({.op = "matmul",
                            .attributes = attributes,
                            .inputs = inputs,
                            .outputs = outputs,
                            .device = *device});
  REQUIRE(kernel != nullptr);
  std::vector<T> y(static_cast<size_t>(outputs[0].shape.elements()));
  std::vector<float> workspace(kernel->workspace_bytes() / sizeof(float) + 1);
  std::vector<void*> in;
  for (std::vector<T>& x : operands) in.push_back(x.data());
  const std::vector<void*> out{y.data()};
  BoundCall(*kernel, in, out, workspace.data()).run(*stream);
  return {y, kernel->workspace_bytes()};
}

TEST_CASE("a product of several chunks of columns is that of oneDNN") {
  (void)cpu_engine().open(0);  // limits the instruction sets, if asked to
  if (matmul_functions(DType::f32, false) == nullptr) {
    WARN("Skipped: without AVX-512 oneDNN computes it anyway");
    return;
  }
  const bool transposed = GENERATE(false, true);
  const int64_t m = 600, k = 700, n = 5003;
  const Attributes attributes{{"transpose_a", true}, {"transpose_b", transposed}};
  const std::vector<TensorSpec> specs{{Shape{k, m}, DType::f32},
                                      {transposed ? Shape{n, k} : Shape{k, n}, DType::f32},
                                      {Shape{n}, DType::f32},
                                      {Shape{m, n}, DType::f32}};
  const std::vector<std::vector<float>> operands{numbers("a", m * k), numbers("b", k * n),
                                                 numbers("bias", n)};
  const std::vector<float> results[] = {
      product<float>(make_matmul_panels, attributes, specs, operands).first,
      product<float>(make_matmul_onednn, attributes, specs, operands).first};
  double worst = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    worst = max_or_inf(worst, std::abs(results[0][i] - results[1][i]));
  }
  CHECK(worst < 1e-4F);  // sums of 700 products of numbers below 1
}

std::vector<Bf16> rounded(const std::vector<float>& from) {
  std::vector<Bf16> out(from.size());
  for (size_t i = 0; i < out.size(); ++i) from_f32(from[i], out[i]);
  return out;
}

TEST_CASE("a wide product in bf16 of several blocks adds up in little memory") {
  (void)cpu_engine().open(0);  // limits the instruction sets, if asked to
  const auto has = [](dnnl::cpu_isa isa) {
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & static_cast<int>(isa)) ==
           static_cast<int>(isa);
  };
  if (!has(dnnl::cpu_isa::avx512_core) ||
      (has(dnnl::cpu_isa::avx512_core_amx) && !has_fast_bf16_dot())) {
    WARN("Skipped: without AVX-512 it is computed in f32, with AMX by oneDNN");
    return;
  }
  const int64_t m = 512, k = 768, n = 9001;  // as the logits of a language model
  const Attributes attributes{{"transpose_b", true}};
  const auto specs = [&](DType dtype) {
    return std::vector<TensorSpec>{
        {Shape{m, k}, dtype}, {Shape{n, k}, dtype}, {Shape{m, n}, dtype}};
  };
  const auto a = rounded(numbers("a", m * k)), b = rounded(numbers("b", n * k));
  const auto [low, bytes] =
      product<Bf16>(make_matmul_panels, attributes, specs(DType::bf16), {a, b});
  const auto wide =
      product<float>(make_matmul_onednn, attributes, specs(DType::f32), {widened(a), widened(b)})
          .first;
  CHECK(bytes < static_cast<size_t>(m * n) * sizeof(float));
  double worst = 0;
  for (size_t i = 0; i < low.size(); ++i) {
    worst =
        max_or_inf(worst, std::abs(to_f32(low[i]) - wide[i]) / std::max(1.0F, std::abs(wide[i])));
  }
  CHECK(worst < 0x1p-7F);  // one unit of bf16's last place
}

TEST_CASE("tiles multiply bf16 that is widened") {
  const MatmulFunctions* functions = matmul_functions(DType::bf16, false);
  if (functions == nullptr) {
    WARN("Skipped: without AVX-512");
    return;
  }
  const bool a_rows = GENERATE(false, true), b_rows = GENERATE(false, true);
  const int64_t m = 21, n = 41, k = 37, words = 33, first = 3;  // the inner axis from `first` on
  const auto a = rounded(numbers("a", m * k)), b = rounded(numbers("b", n * k));
  const int64_t a_stride = a_rows ? k : m, b_stride = b_rows ? k : n;
  std::vector<float> left(2 * kMatmulRows * words), right(kMatmulColumns * words);
  functions->pack({a.data(), a_stride, a_rows, m, k},
                  {first, words, 0, 2, left.data(), kMatmulRows * words, kMatmulRows});
  functions->pack({b.data(), b_stride, b_rows, n, k},
                  {first, words, 0, 3, right.data(), kMatmulRows, kMatmulColumns});
  std::vector<float> y(static_cast<size_t>(m * n), 1.0F);
  functions->multiply({.left = left.data(),
                       .right = right.data(),
                       .words = words,
                       .rows = m,
                       .columns = n,
                       .sums = y.data(),
                       .sums_stride = n,
                       .add = true,
                       .bias = nullptr,
                       .low = nullptr,
                       .low_stride = 0,
                       .fetch = {}});
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 1;
      for (int64_t l = first; l < first + words; ++l) {
        const auto x = static_cast<size_t>(a_rows ? i * k + l : l * m + i);
        const auto z = static_cast<size_t>(b_rows ? j * k + l : l * n + j);
        sum += static_cast<double>(to_f32(a[x])) * static_cast<double>(to_f32(b[z]));
      }
      worst =
          max_or_inf(worst, std::abs(sum - static_cast<double>(y[static_cast<size_t>(i * n + j)])));
    }
  }
  CHECK(worst < 1e-5);
}

}  // namespace
}  // namespace dltrain

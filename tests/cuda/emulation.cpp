// The CUDA engine's own kernels on the CPU, and proofs that the emulation finds what it is for.
#include "cuda_emulation/emulation.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.h"
#include "cuda_emulation/engine.h"
#include "ops/compare.h"
#include "reference/engine.h"

namespace dltrain {
namespace {

// Ops that have no CUDA kernel yet are left out, and weight gradients that are there for other
// engines: thousands of fibers for each pixel take minutes.
bool served(const OpCase& c) {
  int64_t weights = 1;
  if (c.attributes.has("weight_shape")) {
    for (int64_t extent : c.attributes.integers("weight_shape")) weights *= extent;
  }
  return weights < 4000 && has_kernel(emulated_cuda_engine(), c.op);
}

TEST_CASE("every op case on the emulated CUDA kernels agrees with the reference") {
  const auto reports = compare_engine(emulated_cuda_engine(), reference_engine(), served);
  const auto cases = std::count_if(op_cases().begin(), op_cases().end(), served);
  REQUIRE(cases > 400);
  REQUIRE(reports.size() >= static_cast<size_t>(cases));
  for (const CaseReport& report : reports) {
    INFO(report.op_case->name << ", " << report.how << ", " << report.variant);
    CHECK(report.fault == "");
  }
}

// The ops of which some case went through f32.
std::set<std::string> check_low_precision(DType dtype, size_t least,
                                          const std::function<bool(const OpCase&)>& wanted) {
  std::set<std::string> widened;
  const auto reports = compare_engine(
      emulated_cuda_engine(), reference_engine(),
      [&](const OpCase& c) { return served(c) && has_low_precision(c) && wanted(c); }, dtype);
  REQUIRE(reports.size() > least);
  for (const CaseReport& report : reports) {
    INFO(dtype_name(dtype) << " " << report.op_case->name << ", " << report.how << ", "
                           << report.variant << ": off by " << report.worst);
    CHECK(report.fault == "");
    if (report.variant == "through f32") widened.insert(report.op_case->op);
  }
  return widened;
}

TEST_CASE("the emulated CUDA kernels in bf16 agree with the reference but for rounding") {
  const std::set<std::string> widened =
      check_low_precision(DType::bf16, 400, [](const OpCase&) { return true; });
  // Products and convolutions in 16 bits are the vendor's; the others read a value a class, are run
  // once a step, or get f32 in training (routers).
  CHECK(widened ==
        std::set<std::string>{"adafactor_sums", "confusion_matrix", "conv2d",
                              "conv2d_backward_input", "conv2d_backward_weight", "lars_sums",
                              "matmul", "router_losses", "router_losses_backward", "sum_of_squares",
                              "top_k_correct", "top_k_routing", "top_k_routing_backward",
                              "weighted_cross_entropy", "weighted_cross_entropy_backward"});
}

// The kernels are the same templates as in bf16: some of each kind will do.
TEST_CASE("the emulated CUDA kernels in f16 agree with the reference but for rounding") {
  constexpr std::string_view kOps[] = {"add",    "cast",   "gelu",    "layer_norm",
                                       "matmul", "reduce", "softmax", "softmax_cross_entropy"};
  check_low_precision(DType::f16, 30, [&](const OpCase& c) {
    return std::find(std::begin(kOps), std::end(kOps), c.op) != std::end(kOps);
  });
}

// With the alignment check of UBSan (cuda_emulation/emulation.cmake): no access is wider than its
// address allows.
TEST_CASE("the emulated CUDA kernels take tensors that begin at any element") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto wanted = [&](const OpCase& c) {
      return served(c) && has_low_precision(c) == (dtype == DType::bf16);
    };
    const auto reports = compare_engine(
        emulated_cuda_engine(), reference_engine(), wanted, dtype,
        [](std::span<const CaseReport>) { return true; }, true);
    REQUIRE(reports.size() > (dtype == DType::bf16 ? 400 : 50));
    for (const CaseReport& report : reports) {
      INFO(dtype_name(dtype) << " " << report.op_case->name << ", " << report.how << ", "
                             << report.variant);
      CHECK(report.fault == "");
    }
  }
}

TEST_CASE("a query of NaN has no numbers after the emulated attention, and no other query does") {
  const TensorSpec spec{Shape{1, 3, 1, 8}, DType::f32};
  OpRun run{
      .op = "attention",
      .attributes = {},
      .inputs = {random_tensor(spec, "q"), random_tensor(spec, "k"), random_tensor(spec, "v")}};
  for (int64_t d = 0; d < 8; ++d) run.inputs[0].set(8 + d, NAN);  // the second query
  const std::vector<HostTensor> outputs = OpRunner(emulated_cuda_engine()).run(run).outputs;
  for (int64_t i = 0; i < 24; ++i) CHECK(std::isnan(outputs[0].get(i)) == (i / 8 == 1));
  for (int64_t t = 0; t < 3; ++t) CHECK(std::isnan(outputs[1].get(t)) == (t == 1));
}

// y[i] = x[n − 1 − i] through shared memory, with and without the barrier.
template <bool barrier>
void reverse_in_shared(const int* x, int* y) {
  __shared__ int tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  if constexpr (barrier) __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}

template <bool barrier>
int runs_that_are_right() {
  int right = 0;
  for (int run = 0; run < 8; ++run) {
    std::vector<int> x(64), y(64), expected(64);
    for (int i = 0; i < 64; ++i)
      x[static_cast<size_t>(i)] = expected[static_cast<size_t>(63 - i)] = 100 * run + i;
    const int* from = x.data();
    int* to = y.data();
    DLTRAIN_LAUNCH(reverse_in_shared<barrier>, 1u, 64u, nullptr, from, to);
    right += y == expected ? 1 : 0;
  }
  return right;
}

TEST_CASE("the emulation shows a missing barrier") {
  CHECK(runs_that_are_right<true>() == 8);
  CHECK(runs_that_are_right<false>() == 0);
}

void half_at_barrier() {
  if (threadIdx.x < 32) __syncthreads();
}
void half_in_shuffle(int* y) {
  if (threadIdx.x < 16) *y = __shfl_xor_sync(0xffffffffu, 1, 1);
}
void nothing() {}

TEST_CASE("the emulation refuses what hangs or cannot be launched") {
  int y = 0, *out = &y;  // arguments are copied: not their addresses
  CHECK_THROWS_AS(DLTRAIN_LAUNCH(nothing, 0u, 32u, nullptr), std::runtime_error);
  CHECK_THROWS_AS(DLTRAIN_LAUNCH(nothing, 1u, 2048u, nullptr), std::runtime_error);
  CHECK_THROWS_AS(DLTRAIN_LAUNCH(nothing, dim3(1, 70000), 32u, nullptr), std::runtime_error);
  CHECK_THROWS_AS(DLTRAIN_LAUNCH(half_at_barrier, 1u, 64u, nullptr), std::runtime_error);
  CHECK_THROWS_AS(DLTRAIN_LAUNCH(half_in_shuffle, 1u, 32u, nullptr, out), std::runtime_error);
}

}  // namespace
}  // namespace dltrain

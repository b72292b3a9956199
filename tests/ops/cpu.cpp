// The CPU engine against the reference engine, case by case.
#include <algorithm>

#include "catch.h"
#include "cpu/engine.h"
#include "ops/compare.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

// What a graph in bf16 or f16 consists of besides losses and updates, which are f32.
constexpr std::string_view kLowPrecisionOps[] = {"relu",          "gelu",
                                                 "gelu_tanh",     "silu",
                                                 "tanh",          "sigmoid",
                                                 "affine",        "identity",
                                                 "relu_backward", "gelu_backward",
                                                 "silu_backward", "gelu_tanh_backward",
                                                 "tanh_backward", "sigmoid_backward",
                                                 "add",           "sub",
                                                 "mul",           "fused_elementwise",
                                                 "broadcast",     "reshape",
                                                 "reduce",        "matmul",
                                                 "conv2d",        "conv2d_backward_input",
                                                 "dropout",       "conv2d_backward_weight",
                                                 "max_pool2d",    "max_pool2d_backward",
                                                 "batch_norm",    "batch_norm_backward",
                                                 "cast",          "batch_norm_inference"};

bool has_low_precision(const OpCase& c) {
  return std::find(std::begin(kLowPrecisionOps), std::end(kLowPrecisionOps), c.op) !=
         std::end(kLowPrecisionOps);
}

}  // namespace

TEST_CASE("the CPU engine agrees with the reference on every op case") {
  for (const CaseReport& report : compare_engine(cpu_engine(), reference_engine())) {
    INFO(report.op_case->name << ", " << report.how << ", " << report.variant << ": off by "
                              << report.worst);
    CHECK(report.fault == "");
  }
}

TEST_CASE("the CPU engine in bf16 and f16 agrees with the reference but for rounding") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    const auto reports = compare_engine(cpu_engine(), reference_engine(), has_low_precision, dtype);
    CHECK(reports.size() > 200);
    for (const CaseReport& report : reports) {
      INFO(dtype_name(dtype) << " " << report.op_case->name << ", " << report.how << ", "
                             << report.variant << ": off by " << report.worst);
      CHECK(report.fault == "");
    }
  }
}

// The CPU engine against the reference engine, case by case.
#include "catch.h"
#include "cpu/engine.h"
#include "ops/compare.h"
#include "reference/engine.h"

using namespace dltrain;

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
    CHECK(reports.size() > 400);
    for (const CaseReport& report : reports) {
      INFO(dtype_name(dtype) << " " << report.op_case->name << ", " << report.how << ", "
                             << report.variant << ": off by " << report.worst);
      CHECK(report.fault == "");
    }
  }
}

TEST_CASE("cross-entropy and its gradient at once have the bits of the two ops") {
  const auto [engine, dtype] =
      GENERATE(std::pair{&reference_engine, DType::f32}, std::pair{&reference_engine, DType::f64},
               std::pair{&cpu_engine, DType::f32}, std::pair{&cpu_engine, DType::bf16});
  OpRunner runner(engine());
  for (const OpCase& c : op_cases()) {
    if (c.op != "softmax_cross_entropy_gradient") continue;
    INFO(c.name << " in " << dtype_name(dtype));
    OpRun run{.op = c.op, .attributes = case_attributes(c, dtype), .inputs = case_inputs(c, dtype)};
    const std::vector<HostTensor> both = runner.run(run).outputs;
    const HostTensor seed = run.inputs[2];
    run.op = "softmax_cross_entropy";
    run.inputs.pop_back();
    const std::vector<HostTensor> loss = runner.run(run).outputs;
    run.op = "softmax_cross_entropy_backward";
    run.inputs.insert(run.inputs.end(), {loss[1], seed});
    CHECK(both[0].data == runner.run(run).outputs[0].data);
    CHECK(both[1].data == loss[0].data);
    CHECK(both[2].data == loss[2].data);
  }
}

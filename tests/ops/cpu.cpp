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

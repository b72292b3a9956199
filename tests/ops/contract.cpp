// The requirements on every row of the op table.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "ops/compare.h"
#include "ops/kernel.h"
#include "reference/engine.h"

using namespace dltrain;

TEST_CASE("every op but the collectives has a case, and every case has a name of its own") {
  std::set<std::string> covered, names;
  for (const OpCase& c : op_cases()) {
    covered.insert(c.op);
    INFO(c.name);
    CHECK(names.insert(c.name).second);
    CHECK(find_op(c.op) != nullptr);
  }
  for (const OpDef& op : all_ops()) {
    if (op.name.ends_with("_begin") || op.name.ends_with("_end")) continue;
    INFO(op.name << ": add a case to one of tests/ops/cases_*.cpp");
    CHECK(covered.contains(std::string(op.name)));
  }
}

TEST_CASE("every op has a doc line, a shape rule, and reference kernels of all its cases") {
  for (const OpDef& op : all_ops()) {
    INFO(op.name);
    CHECK_FALSE(op.doc.empty());
    CHECK((op.infer != nullptr || op.signature.exists()));
    CHECK(find_op(op.name) == &op);
    const Engine& engine = reference_engine();
    CHECK(std::any_of(engine.kernels, engine.kernels + engine.kernel_count,
                      [&](const KernelRow& row) { return row.op == op.name; }));
  }
}

TEST_CASE("every case moves bytes, and in-place writers alias tensors of the same spec") {
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    const OpDef& op = *find_op(c.op);
    const SpecList inputs = case_specs(c, DType::f32);
    const SpecList outputs = op.output_specs(inputs, c.attributes);
    const Cost cost = op_cost(op, inputs, outputs, c.attributes);
    CHECK(cost.bytes > 0);
    CHECK(cost.flops >= 0);
    const std::vector<int> aliases = op.output_aliases(inputs, c.attributes, outputs.size());
    REQUIRE(aliases.size() == outputs.size());
    for (size_t i = 0; i < aliases.size(); ++i) {
      if (aliases[i] >= 0)
        CHECK(inputs.at(static_cast<size_t>(aliases[i])).bytes() == outputs[i].bytes());
    }
  }
}

TEST_CASE("the cost of a product counts multiply-adds twice") {
  const SpecList inputs{{Shape{3, 5}, DType::f32}, {Shape{5, 7}, DType::f32}};
  const OpDef& op = *find_op("matmul");
  CHECK(op_cost(op, inputs, op.output_specs(inputs, {}), {}).flops == 2.0 * 3 * 5 * 7);
  CHECK(op_cost(op, inputs, op.output_specs(inputs, {}), {}).bytes == 4.0 * (15 + 35 + 21));
}

TEST_CASE("the reference kernels in f32 agree with themselves in f64") {
  const auto reports = compare_engine(reference_engine(), reference_engine());
  REQUIRE(reports.size() >= op_cases().size());
  for (const CaseReport& report : reports) {
    INFO(report.op_case->name << ", " << report.how);
    CHECK(report.fault == "");
  }
}

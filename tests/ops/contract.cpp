// What every row of the op table must have.
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
    if (op.name.starts_with("all_reduce")) continue;
    INFO(op.name);
    CHECK(covered.contains(std::string(op.name)));
  }
}

TEST_CASE("the reference kernels in f32 agree with themselves in f64") {
  for (const CaseReport& report : compare_engine(reference_engine(), reference_engine())) {
    INFO(report.op_case->name << ", " << report.how);
    CHECK(report.fault == "");
  }
}

// The promises of the CPU engine beyond the values of the reference engine (cpu.cpp).
#include <omp.h>

#include "catch.h"
#include "cpu/engine.h"
#include "cpu/table.h"
#include "ops/compare.h"
#include "ops/kernel.h"

using namespace dltrain;

TEST_CASE("the cpu engine has a row for every op") {
  for (const OpDef& op : all_ops()) {
    INFO(op.name);
    bool found = false;
    for (const KernelRow& row : cpu_kernels()) found = found || row.op == op.name;
    CHECK(found);
  }
}

TEST_CASE("the cpu engine's own kernels give the same bits with any number of threads") {
  const int threads = omp_get_max_threads();
  size_t compared = 0;
  for (const OpCase& c : op_cases()) {
    OpRunner runner(cpu_engine());
    const OpRun run{.op = c.op, .attributes = c.attributes, .inputs = case_inputs(c, DType::f32)};
    omp_set_num_threads(1);
    const OpResult one = runner.run(run);
    // The products of TF32 may be oneDNN's too, below the rounding of their operands.
    if (one.variant != "oneDNN" && !c.attributes.has("math")) {
      ++compared;
      for (int count : {2, 3, 5}) {
        omp_set_num_threads(count);
        const OpResult many = runner.run(run);
        INFO(c.name << " with " << count << " threads");
        for (size_t i = 0; i < one.outputs.size(); ++i) {
          CHECK(many.outputs[i].data == one.outputs[i].data);
        }
      }
    }
    omp_set_num_threads(threads);
  }
  CHECK(compared > 100);
}

TEST_CASE("the cpu engine names its device and libraries") {
  const auto device = cpu_engine().open(0);
  CHECK(device->properties().backend == "cpu");
  CHECK(device->properties().libraries.starts_with("oneDNN "));
  CHECK_FALSE(device->properties().architecture.empty());
  CHECK_THROWS(cpu_engine().open(1));
}

TEST_CASE("the cpu engine refuses to compute in f64") {
  const auto device = cpu_engine().open(0);
  const Attributes none;
  const TensorSpec spec{Shape{4, 4}, DType::f64};
  for (const char* op : {"matmul", "relu", "add"}) {
    const std::vector<TensorSpec> inputs(op == std::string("relu") ? 1 : 2, spec);
    const std::vector<TensorSpec> outputs{spec};
    INFO(op);
    CHECK_THROWS_WITH(find_kernel(cpu_engine(), {.op = op,
                                                 .attributes = none,
                                                 .inputs = inputs,
                                                 .outputs = outputs,
                                                 .device = *device}),
                      Catch::Contains("the cpu engine has no kernel for"));
  }
}

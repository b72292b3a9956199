// The ops that gpu_check times are accepted at full size by their shape rules and CUDA kernels.
#include "gpu_check/timed_ops.h"

#include <set>

#include "base/error.h"
#include "catch.h"
#include "cuda_emulation/engine.h"
#include "ops/kernel.h"

namespace dltrain {
namespace {

TEST_CASE("the CUDA engine's own kernels take every op that gpu_check times") {
  const Engine& engine = emulated_cuda_engine();
  const auto device = engine.open(0);
  for (const char* set : {"ceilings", "ops", "variants", "gemm"}) {
    std::set<std::string> names;
    for (const TimedOp& timed : timed_ops(set, 1)) {
      INFO(set << ": " << timed.name);
      CHECK(names.insert(timed.name).second);
      const OpDef* op = find_op(timed.op);
      REQUIRE(op != nullptr);
      const SpecList outputs = op->output_specs(timed.inputs, timed.attributes);
      CHECK(op_cost(*op, timed.inputs, outputs, timed.attributes).bytes > 0);
      const FoundKernel found = find_kernel(engine, {.op = timed.op,
                                                     .attributes = timed.attributes,
                                                     .inputs = timed.inputs,
                                                     .outputs = outputs,
                                                     .device = *device});
      CHECK(found.kernel != nullptr);
    }
  }
  CHECK_THROWS_AS(timed_ops("nonsense", 1), Error);
}

}  // namespace
}  // namespace dltrain

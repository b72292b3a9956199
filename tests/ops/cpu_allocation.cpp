// Counts allocations: operator new of this program is replaced, and kernels of the CPU engine are
// run between two readings of the counter. oneDNN's own calls are not ours and not counted.

#include "catch.h"
#include "count_allocations.h"
#include "cpu/engine.h"
#include "ops/kernel.h"
#include "ops/runner.h"

using namespace dltrain;

namespace {

// Runs a bound kernel three times; the number of allocations.
long allocations_of(const OpCase& c) {
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  const auto contents = case_inputs(c, DType::f32);
  const Attributes attributes = case_attributes(c, DType::f32);
  const SpecList inputs = specs_of(contents),
                 outputs = find_op(c.op)->output_specs(inputs, attributes);
  const FoundKernel found = find_kernel(cpu_engine(), {.op = c.op,
                                                       .attributes = attributes,
                                                       .inputs = inputs,
                                                       .outputs = outputs,
                                                       .device = *device});
  std::vector<Buffer> memory;
  std::vector<void*> in, out;
  for (const HostTensor& tensor : contents) {
    memory.emplace_back(*device, tensor.data.size());
    std::copy(tensor.data.begin(), tensor.data.end(), memory.back().data());
    in.push_back(memory.back().data());
  }
  const auto aliases = find_op(c.op)->output_aliases(inputs, attributes, outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (aliases[i] < 0) memory.emplace_back(*device, outputs[i].bytes());
    out.push_back(aliases[i] < 0 ? memory.back().data() : in[static_cast<size_t>(aliases[i])]);
  }
  memory.emplace_back(*device, found.kernel->workspace_bytes());
  const BoundCall call(*found.kernel, in, out, memory.back().data());
  call.run(*stream);  // threads and oneDNN's lazily made objects come with the first run
  AllocationCounter::start();
  for (int i = 0; i < 3; ++i) call.run(*stream);
  return AllocationCounter::stop();
}

}  // namespace

TEST_CASE("the replaced operator new counts") {
  AllocationCounter::start();
  auto* p = new std::vector<int>(100);
  CHECK(AllocationCounter::stop() == 2);
  delete p;
}

TEST_CASE("kernels of the cpu engine allocate nothing when they run") {
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    CHECK(allocations_of(c) == 0);
  }
}

// Counts allocations: operator new of this program is replaced, and kernels of the CPU engine are
// run between two readings of the counter. oneDNN's own calls are not ours and not counted.
// The operators below replace all of new and delete together; g++ does not see that they match.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <atomic>
#include <cstdlib>
#include <new>

#include <dlfcn.h>

#include "catch.h"
#include "cpu/engine.h"
#include "ops/kernel.h"
#include "ops/runner.h"

using namespace dltrain;

namespace {

std::atomic<bool> counting{false};
std::atomic<long> counted{0};

bool called_from_onednn(void* return_address) {
  Dl_info info{};
  return dladdr(return_address, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libdnnl") != std::string_view::npos;
}

void* allocate(size_t bytes, size_t alignment, void* return_address) {
  if (counting && !called_from_onednn(return_address)) ++counted;
  void* out = nullptr;
  if (posix_memalign(&out, std::max(alignment, sizeof(void*)), bytes) != 0) throw std::bad_alloc();
  return out;
}

// Runs a bound kernel three times; the number of allocations.
long allocations_of(const OpCase& c) {
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  const auto contents = case_inputs(c, DType::f32);
  const Attributes attributes = case_attributes(c, DType::f32);
  const SpecList inputs = specs_of(contents), outputs = find_op(c.op)->infer(inputs, attributes);
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
  const auto aliases = find_op(c.op)->aliases != nullptr
                           ? find_op(c.op)->aliases(inputs, attributes)
                           : std::vector<int>(outputs.size(), -1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (aliases[i] < 0) memory.emplace_back(*device, outputs[i].bytes());
    out.push_back(aliases[i] < 0 ? memory.back().data() : in[static_cast<size_t>(aliases[i])]);
  }
  memory.emplace_back(*device, found.kernel->workspace_bytes());
  found.kernel->bind({in, out, memory.back().data()});
  found.kernel->run(*stream);  // threads and oneDNN's lazily made objects come with the first run
  counted = 0;
  counting = true;
  for (int i = 0; i < 3; ++i) found.kernel->run(*stream);
  counting = false;
  return counted;
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate(bytes, 1, __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return allocate(bytes, 1, __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

TEST_CASE("the replaced operator new counts") {
  counted = 0;
  counting = true;
  auto* p = new std::vector<int>(100);
  counting = false;
  delete p;
  CHECK(counted == 2);
}

TEST_CASE("kernels of the cpu engine allocate nothing when they run") {
  for (const OpCase& c : op_cases()) {
    INFO(c.name);
    CHECK(allocations_of(c) == 0);
  }
}

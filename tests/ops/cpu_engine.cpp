// The promises of the CPU engine beyond the values of the reference engine (cpu.cpp).
#include <algorithm>
#include <array>

#include <hwy/targets.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "catch.h"
#include "cpu/engine.h"
#include "cpu/matmul_tiles.h"
#include "cpu/table.h"
#include "ops/compare.h"
#include "ops/kernel.h"
#include "refusal.h"

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
  const auto device = cpu_engine().open(0);  // limits the instruction sets, if asked to
  const bool avx512 = matmul_functions(DType::f32, false) != nullptr;
  size_t compared = 0;
  for (const OpCase& c : op_cases()) {
    OpRunner runner(cpu_engine());
    const OpRun run{.op = c.op, .attributes = c.attributes, .inputs = case_inputs(c, DType::f32)};
    omp_set_num_threads(1);
    const OpResult one = runner.run(run);
    // The products of TF32, and without AVX-512 those of FP8, may be oneDNN's too, below the
    // rounding of their operands.
    const bool rounded_product = c.attributes.has("math") || (c.op == "fp8_matmul" && !avx512);
    if (one.variant != "oneDNN" && !rounded_product) {
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

#if HWY_ARCH_X86
TEST_CASE("the gradient of max pooling without AVX-512 reads no byte beyond the positions") {
  constexpr size_t kPage = 65536, kChannels = 3;
  void* const memory =
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* end = static_cast<uint8_t*>(memory) + kPage;
  REQUIRE(mprotect(end, kPage, PROT_NONE) == 0);
  const auto device = cpu_engine().open(0);
  const auto stream = device->make_stream();
  // Windows that overlap, and windows that do not.
  for (const int64_t stride : {1, 2}) {
    const int64_t width = stride == 1 ? 3 : 4;
    const Attributes attributes{{"kernel", std::vector<int64_t>{2, 2}},
                                {"stride", std::vector<int64_t>{stride, stride}},
                                {"input_shape", std::vector<int64_t>{1, 2, width, kChannels}}};
    const Shape y{1, 1, 2, kChannels};
    const std::vector<TensorSpec> inputs{{y, DType::f32}, {y, DType::u8}};
    const std::vector<TensorSpec> outputs{{Shape{1, 2, width, kChannels}, DType::f32}};
    const FoundKernel found = find_kernel(cpu_engine(), {.op = "max_pool2d_backward",
                                                         .attributes = attributes,
                                                         .inputs = inputs,
                                                         .outputs = outputs,
                                                         .device = *device});
    std::vector<float> dy{1, 2, 3, 4, 5, 6}, dx(static_cast<size_t>(2 * width) * kChannels);
    uint8_t* position = end - 2 * kChannels;
    std::ranges::copy(std::to_array<uint8_t>({0, 1, 3, 0, 1, 3}), position);
    const int64_t before = hwy::SupportedTargets();
    hwy::SetSupportedTargetsForTest(before & ~(2 * HWY_AVX3 - 1));
    BoundCall(*found.kernel, std::vector<void*>{dy.data(), position}, std::vector<void*>{dx.data()},
              nullptr)
        .run(*stream);
    hwy::SetSupportedTargetsForTest(before);
    CHECK(dx == (stride == 1
                     ? std::vector<float>{1, 0, 0, 4, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 3, 0, 0, 6}
                     : std::vector<float>{1, 0, 0, 0, 2, 0, 4, 0, 0, 0, 5, 0,
                                          0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 6}));
  }
  munmap(memory, 2 * kPage);
}
#endif

TEST_CASE("free memory of the cpu is what the limits of this process leave") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  const auto limit_data = [&](uint64_t bytes) {
    const rlimit limited{std::min<rlim_t>(bytes, before.rlim_max), before.rlim_max};
    CHECK(setrlimit(RLIMIT_DATA, &limited) == 0);
  };
  limit_data(uint64_t{1} << 60);
  uint64_t used = 0;
  for (const MemoryLimit& limit : memory_limits()) {
    if (limit.of == MemoryLimit::Of::data) used = limit.used;
  }
  limit_data(used + (uint64_t{64} << 20));
  const auto device = cpu_engine().open(0);
  const std::string refusal =
      refusal_of([&] { device->allocate(size_t{128} << 20, Memory::device); }, ExitCode::memory);
  setrlimit(RLIMIT_DATA, &before);
  CHECK(device->properties().free_memory <= uint64_t{64} << 20);
  CHECK_THAT(refusal,
             Catch::Matchers::Matches("out of memory: 128 MiB needed, [0-9]{1,2} MiB free .*"));
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

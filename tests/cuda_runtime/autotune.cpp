// Choices among cuBLASLt's algorithms and cuDNN's plans: by their own order, or by time; kept on
// the disk; the same on all ranks.
#include "cuda/vendor/autotune.h"

#include <cmath>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "catch.h"
#include "comm/agreement.h"
#include "cuda/makers.h"
#include "cuda/vendor/requests.h"
#include "cuda_runtime/cache_folder.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "ops/kernel_refused.h"
#include "refusal.h"
#include "tensor/low_precision.h"

using namespace dltrain;

namespace {

// The number of the algorithm that is chosen for a product with n columns, and how many products
// were run to choose it.
struct Choice {
  size_t algorithm;
  int64_t runs;
  bool operator==(const Choice&) const = default;
};

Choice choose(Device& device, int64_t n) {
  const TensorSpec inputs[] = {{Shape{64, 32}, DType::bf16}, {Shape{32, n}, DType::bf16}},
                   outputs[] = {{Shape{64, n}, DType::bf16}};
  const Attributes attributes;
  const int64_t before = fake_cuda::counts().products;
  const auto kernel = make_blas_matmul({.op = "matmul",
                                        .attributes = attributes,
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .device = device});
  REQUIRE(kernel != nullptr);
  return {kernel->workspace_bytes() / 1024, fake_cuda::counts().products - before};
}

TEST_CASE("without autotune the library's first proposal is taken and nothing is run") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 1, 3});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  CHECK(choose(*device, 16) == Choice{0, 0});
  CHECK(cache.files() == 0);
}

TEST_CASE("autotune takes the fastest algorithm and keeps the choice") {
  fake_cuda::reset(fake_cuda::Order::eager);
  // One is refused when it is run; quick looks at eight only.
  fake_cuda::set_algorithms({5, -1, 3, 4, 2, 6, 7, 8, 0.5});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  const Choice first = choose(*device, 24);
  CHECK(first.algorithm == 4);
  CHECK(first.runs > 8);
  CHECK(cache.files() == 1);
  CHECK(choose(*device, 24) == Choice{4, 0});  // the same shape again
  CHECK(choose(*device, 40).algorithm == 4);   // another one
  CHECK(cache.files() == 2);
  device->set_autotune(Autotune::full);
  CHECK(choose(*device, 24).algorithm == 8);
  device->set_autotune(Autotune::off);
  CHECK(choose(*device, 24) == Choice{0, 0});
}

TEST_CASE("a product of FP8 codes has the scales of its operands") {
  const TensorSpec scale{Shape{1}, DType::f32}, x{Shape{2, 24, 32}, DType::u8},
      w{Shape{48, 32}, DType::u8}, inputs[] = {x, w, scale, scale},
                                   outputs[] = {{Shape{2, 24, 48}, DType::bf16}};
  const Attributes attributes{{"format_a", "e5m2"}, {"format_b", "e4m3"}, {"output_dtype", "bf16"}};
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {9, 0}}) {
    fake_cuda::reset(fake_cuda::Order::eager);
    fake_cuda::set_gpu({.major = major, .minor = minor});
    fake_cuda::set_algorithms({1});
    const auto device = fake_cuda_engine().open(0);
    const auto kernel = make_blas_matmul({.op = "fp8_matmul",
                                          .attributes = attributes,
                                          .inputs = inputs,
                                          .outputs = outputs,
                                          .device = *device});
    CHECK((kernel != nullptr) == (10 * major + minor >= 89));
    CHECK(device->properties().has_fp8 == (kernel != nullptr));
    if (kernel == nullptr) continue;
    alignas(16) char memory[5][16];
    void *in[] = {memory[0], memory[1], memory[2], memory[3]}, *out[] = {memory[4]};
    BoundCall(*kernel, in, out, nullptr).run(*device->make_stream());
    // The library computes yᵀ = b·aᵀ; row-major b is its transposed matrix.
    const fake_cuda::Product product = fake_cuda::last_product();
    CHECK(product.scales == std::array{reinterpret_cast<uintptr_t>(memory[3]),
                                       reinterpret_cast<uintptr_t>(memory[2])});
    CHECK(product.types == std::array<int, 2>{CUDA_R_8F_E4M3, CUDA_R_8F_E5M2});
    CHECK(product.transposed == std::array{int32_t{CUBLAS_OP_T}, int32_t{CUBLAS_OP_N}});
  }
}

TEST_CASE("a product of FP8 codes in blocks has scales of these blocks") {
  using Block = std::vector<int64_t>;
  const Block vector{1, 128}, square{128, 128}, micro{1, 32};
  struct Row {
    int major, rows;
    Block a, b;
    std::array<int, 2> modes;  // of the library's operands, b and a
    bool runs;
  };
  constexpr int kVector = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                kSquare = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                kMicro = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  for (const Row& row :
       {Row{9, 24, vector, square, {kSquare, kVector}, true},
        {9, 24, vector, vector, {kVector, kVector}, true},
        {9, 22, vector, vector, {}, false},  // columns of scales that begin anywhere
        {9, 24, micro, micro, {}, false},
        {10, 22, micro, micro, {kMicro, kMicro}, true},
        {10, 24, vector, square, {}, false}}) {
    INFO("sm_" << row.major << "0, " << row.rows << " rows, blocks of " << row.b[0] << "x"
               << row.b[1]);
    fake_cuda::reset(fake_cuda::Order::eager);
    fake_cuda::set_gpu({.major = row.major, .minor = 0});
    fake_cuda::set_algorithms({1});
    const auto device = fake_cuda_engine().open(0);
    const Attributes attributes{{"format_a", "e4m3"},
                                {"format_b", "e4m3"},
                                {"block_a", row.a},
                                {"block_b", row.b},
                                {"output_dtype", "bf16"}};
    const SpecList inputs{{Shape{row.rows, 288}, DType::u8},
                          {Shape{48, 288}, DType::u8},
                          {Shape{3, row.rows}, DType::f32},
                          {Shape{1, 4}, DType::f32}},
        outputs{{Shape{row.rows, 48}, DType::bf16}};
    std::unique_ptr<Kernel> kernel;
    try {
      kernel = make_blas_matmul({.op = "fp8_matmul",
                                 .attributes = attributes,
                                 .inputs = inputs,
                                 .outputs = outputs,
                                 .device = *device});
    } catch (const KernelRefused&) {
    }
    REQUIRE((kernel != nullptr) == row.runs);
    if (!row.runs) continue;
    alignas(16) char memory[5][16];
    void *in[] = {memory[0], memory[1], memory[2], memory[3]}, *out[] = {memory[4]};
    BoundCall(*kernel, in, out, nullptr).run(*device->make_stream());
    CHECK(fake_cuda::last_product().modes == row.modes);
  }
}

TEST_CASE("a choice that the library no longer knows gives way to its proposal") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 4, 3});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  CHECK(choose(*device, 56).algorithm == 2);
  fake_cuda::set_algorithms({5, 4});
  CHECK(choose(*device, 56) == Choice{0, 0});
}

TEST_CASE("where there is no memory to time in the library's proposal is taken") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 4});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  fake_cuda::fail_at("cudaMalloc", 0, cudaErrorMemoryAllocation);
  CHECK(choose(*device, 72) == Choice{0, 0});
  CHECK(choose(*device, 72).algorithm == 1);
}

// The engine that is chosen for a convolution of images of that height, by its workspace.
struct PlanChoice {
  size_t plan;
  int64_t runs;
  bool operator==(const PlanChoice&) const = default;
};

enum class Pass { forward, input, weight };

std::unique_ptr<Kernel> make_convolution(Device& device, int64_t height,
                                         Pass pass = Pass::forward) {
  const TensorSpec x{Shape{2, height, 8, 16}, DType::bf16}, w{Shape{32, 1, 1, 16}, DType::bf16},
      y{Shape{2, height, 8, 32}, DType::bf16};
  const TensorSpec forward[] = {x, w}, input[] = {y, w}, weight[] = {y, x};
  const Attributes attributes;
  const auto request = [&](const char* op, std::span<const TensorSpec> inputs,
                           const TensorSpec& output) {
    return KernelRequest{.op = op,
                         .attributes = attributes,
                         .inputs = inputs,
                         .outputs = {&output, 1},
                         .device = device};
  };
  auto kernel = pass == Pass::forward ? make_cudnn_conv2d(request("conv2d", forward, y))
                : pass == Pass::input
                    ? make_cudnn_conv2d_input(request("conv2d_backward_input", input, x))
                    : make_cudnn_conv2d_weight(request("conv2d_backward_weight", weight, w));
  REQUIRE(kernel != nullptr);
  return kernel;
}

PlanChoice choose_plan(Device& device, int64_t height, Pass pass = Pass::forward) {
  const int64_t before = fake_cuda::counts().convolutions;
  const auto kernel = make_convolution(device, height, pass);
  return {kernel->workspace_bytes() / 1024, fake_cuda::counts().convolutions - before};
}

// Plan i takes i KiB of workspace.
void set_plans(const std::vector<float>& milliseconds) {
  std::vector<fake_cuda::DnnPlan> plans;
  for (const float took : milliseconds) {
    plans.push_back({.milliseconds = took, .workspace = 1024 * static_cast<int64_t>(plans.size())});
  }
  fake_cuda::set_plans(std::move(plans));
}

TEST_CASE(
    "without autotune the first plan of cuDNN that can be built is taken and nothing is run") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_plans({{.workspace = 1024, .deterministic = false},
                        {.workspace = 2048, .builds = false},
                        {.workspace = int64_t{1} << 30},
                        {.workspace = 4096},
                        {.workspace = 5120}});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  CHECK(choose_plan(*device, 8) == PlanChoice{4, 0});
  CHECK(cache.files() == 0);
}

TEST_CASE("autotune takes cuDNN's fastest plan of a pass and shape and keeps the choice") {
  fake_cuda::reset(fake_cuda::Order::eager);
  set_plans({5, -1, 3, 4, 2, 6, 7, 8, 0.5});
  const CacheFolder cache;
  {
    const auto device = fake_cuda_engine().open(0);
    device->set_autotune(Autotune::quick);
    const PlanChoice first = choose_plan(*device, 8);
    CHECK(first.plan == 4);
    CHECK(first.runs > 8);
    CHECK(cache.files() == 1);
    CHECK(choose_plan(*device, 8) == PlanChoice{4, 0});
    for (const Pass pass : {Pass::input, Pass::weight}) {
      CHECK(choose_plan(*device, 8, pass).runs > 8);
      CHECK(choose_plan(*device, 8, pass) == PlanChoice{4, 0});
    }
    CHECK(choose_plan(*device, 16).runs > 8);
    CHECK(cache.files() == 4);
    device->set_autotune(Autotune::full);
    CHECK(choose_plan(*device, 8).plan == 8);
  }
  // Another process.
  const auto later = fake_cuda_engine().open(0);
  later->set_autotune(Autotune::quick);
  CHECK(choose_plan(*later, 8) == PlanChoice{4, 0});
  set_plans({5, 4});  // another version would not propose it
  CHECK(choose_plan(*later, 8) == PlanChoice{0, 0});
}

TEST_CASE("plans that give other sums in every run, need too much memory or fail are not timed") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_plans({{.milliseconds = 5, .workspace = 1024},
                        {.milliseconds = 1, .workspace = 2048, .deterministic = false},
                        {.milliseconds = 1, .workspace = int64_t{1} << 30},
                        {.milliseconds = 1, .workspace = 4096, .builds = false},
                        {.milliseconds = -1, .workspace = 5120},
                        {.milliseconds = 4, .workspace = 6144}});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::full);
  CHECK(choose_plan(*device, 8).plan == 6);
}

TEST_CASE("when the time for timing is over the library's order decides, and is not kept") {
  fake_cuda::reset(fake_cuda::Order::eager);
  set_plans({5, 4});
  fake_cuda::set_algorithms({5, 4});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  auto& cuda = dynamic_cast<CudaDevice&>(*device);
  CHECK(choose_plan(*device, 8).plan == 1);
  CHECK(cuda.tuning().seconds > 0);
  cuda.tuning().seconds = tuning_limits(Autotune::quick).total_seconds;
  CHECK(choose_plan(*device, 16) == PlanChoice{0, 0});
  CHECK(choose(*device, 88) == Choice{0, 0});
  CHECK(cache.files() == 1);
  CHECK(choose_plan(*device, 8) == PlanChoice{1, 0});
  // One choice takes no longer than its share: here two candidates, of which one fits.
  cuda.tuning().seconds = 0;
  const double limit = tuning_limits(Autotune::quick).choice_seconds;
  cuda.tuning().seconds = tuning_limits(Autotune::quick).total_seconds - limit / 100;
  size_t tried = 0;
  const auto choice = tuned_choice(cuda, "slow", [&] {
    const auto best = fastest(cuda, 2, [&](size_t i, Stream&) {
      tried = std::max(tried, i + 1);
      std::this_thread::sleep_for(std::chrono::duration<double>(limit / 50));
      return true;
    });
    return std::to_string(best.value_or(7));
  });
  CHECK(choice == "0");
  CHECK(tried == 1);
}

TEST_CASE("all that is done for a choice counts as time, and without time left nothing is done") {
  fake_cuda::reset(fake_cuda::Order::eager);
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  auto& cuda = dynamic_cast<CudaDevice&>(*device);
  const auto build = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::string("built");
  };
  CHECK(tuned_choice(cuda, "a", build) == "built");
  CHECK(cuda.tuning().seconds >= 0.02);
  cuda.tuning().seconds = tuning_limits(Autotune::quick).total_seconds;
  bool called = false;
  CHECK(tuned_choice(cuda, "b", [&] {
          called = true;
          return build();
        }) == "");
  CHECK(!called);
}

TEST_CASE("candidates are timed on normal numbers that are not in the cache") {
  fake_cuda::reset(fake_cuda::Order::eager);
  set_plans({5, 4});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  std::vector<void*> images;
  double sum = 0, squares = 0, count = 0;
  fake_cuda::set_plan_work([&](const std::map<int64_t, void*>& tensors) {
    images.push_back(tensors.at(1));
    const auto* x = static_cast<const Bf16*>(tensors.at(1));
    for (int i = 0; i < 1024; ++i) {
      sum += to_f32(x[i]);
      squares += to_f32(x[i]) * to_f32(x[i]);
      ++count;
    }
  });
  const auto kernel = make_convolution(*device, 8);
  fake_cuda::set_plan_work({});
  CHECK(images.size() > 3);
  CHECK(std::set(images.begin(), images.end()).size() == images.size());
  CHECK(std::abs(sum / count) < 0.2);
  CHECK(squares / count == Approx(1).epsilon(0.2));
}

TEST_CASE("timing takes as many sets of tensors as exceed the cache, and half of the free memory") {
  fake_cuda::reset(fake_cuda::Order::eager);
  const auto device = fake_cuda_engine().open(0);
  auto& cuda = dynamic_cast<CudaDevice&>(*device);
  const TensorSpec tensors[] = {{Shape{10 << 20}, DType::u8}, {Shape{20 << 20}, DType::u8}};
  const auto sets = [&] {
    TimingTensors timed(cuda, tensors);
    std::set<void*> firsts;
    while (firsts.insert(timed.next()[0]).second) continue;
    return firsts.size();
  };
  REQUIRE(cuda.cache_bytes() == 60 << 20);
  CHECK(sets() == 5);
  fake_cuda::set_gpu({.total = 141u << 20});
  CHECK(sets() == 2);
  fake_cuda::set_gpu({.total = 50u << 20});
  CHECK(sets() == 1);
}

TEST_CASE("equal convolutions share a plan as long as one of them is there") {
  fake_cuda::reset(fake_cuda::Order::eager);
  set_plans({1});
  const auto device = fake_cuda_engine().open(0);
  {
    std::vector<std::unique_ptr<Kernel>> layers;
    for (int i = 0; i < 16; ++i) layers.push_back(make_convolution(*device, 8));
    CHECK(fake_cuda::counts().plans == 1);
    layers.push_back(make_convolution(*device, 8, Pass::input));
    layers.push_back(make_convolution(*device, 16));
    CHECK(fake_cuda::counts().plans == 3);
  }
  CHECK(make_convolution(*device, 8) != nullptr);
  CHECK(fake_cuda::counts().plans == 4);
}

TEST_CASE("the rank that needs a choice first makes it for all") {
  fake_cuda::reset(fake_cuda::Order::eager);
  std::optional<CacheFolder> cache(std::in_place);
  StoreServer server("127.0.0.1", 0);
  const auto rank = [&](int number) {
    const auto client =
        std::make_shared<StoreClient>(StoreOptions{.port = server.port(), .prefix = "run/"});
    auto device = fake_cuda_engine().open(0);
    device->set_autotune(
        Autotune::quick,
        [client, agreement = std::make_shared<RankAgreement>(*client, number,
                                                             std::chrono::milliseconds(100))](
            const auto& key, const auto& make) { return agreement->choose_as_first(key, make); });
    return device;
  };
  const auto first = rank(0), second = rank(1);
  set_plans({5, 4, 3});
  fake_cuda::set_algorithms({5, 4, 3});
  CHECK(choose_plan(*first, 8).plan == 2);
  CHECK(choose(*second, 24).algorithm == 2);
  // The other one times nothing itself, whatever its own times and its own disk would say.
  set_plans({3, 4, 5});
  fake_cuda::set_algorithms({3, 4, 5});
  cache.reset();
  cache.emplace();
  CHECK(choose_plan(*second, 8) == PlanChoice{2, 0});
  CHECK(choose(*first, 24) == Choice{2, 0});
  // It stores the choice, so a later run has it whichever rank asks first.
  const auto alone = fake_cuda_engine().open(0);
  alone->set_autotune(Autotune::quick);
  CHECK(choose_plan(*alone, 8) == PlanChoice{2, 0});
  CHECK(choose(*alone, 24) == Choice{2, 0});
  // Where the first has no time to choose, all ranks take the library's first plan.
  dynamic_cast<CudaDevice&>(*first).tuning().seconds = 1e9;
  CHECK(choose_plan(*first, 16) == PlanChoice{0, 0});
  CHECK(choose_plan(*second, 16) == PlanChoice{0, 0});
  dynamic_cast<CudaDevice&>(*first).tuning().seconds = 0;
  CHECK(choose_plan(*first, 16) == PlanChoice{0, 0});
  // A failure of a rank while it times is one of those that wait for it.
  fake_cuda::fail_at("cudaEventSynchronize", 0, cudaErrorIllegalInstruction);
  CHECK(refusal_of([&] { choose_plan(*second, 24); }, ExitCode::device) != "");
  const std::string why = refusal_of([&] { choose_plan(*first, 24); }, ExitCode::rank);
  CHECK_THAT(why, Catch::Matchers::StartsWith("rank 1 has given up: CUDA: waiting for the GPU"));
}

}  // namespace

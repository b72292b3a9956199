// If cuBLASLt or cuDNN refuses a request, the next variant is taken and the reason reported once.
#include "catch.h"
#include "config/load.h"
#include "cuda/makers.h"
#include "cuda/vendor/requests.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "ops/kernel.h"
#include "ops/op.h"
#include "reference/engine.h"
#include "run/advice.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// cuBLASLt and cuDNN before the own kernels, as in the plug-in.
const Engine& vendor_engine() {
  static std::vector<KernelRow> rows{
      {"matmul", "cuBLASLt", make_blas_matmul, true},
      {"conv2d", "cuDNN", make_cudnn_conv2d},
      {"recurrent_network", "cuDNN", make_cudnn_recurrent, false, true, cudnn_recurrent_kept_bytes},
  };
  static const Engine engine = fake_engine_with(rows);
  return engine;
}

// A device whose notices are kept.
struct Listened {
  std::unique_ptr<Device> device = vendor_engine().open(0);
  std::vector<std::string> notices;
  Listened() {
    device->notices().report_to([this](const std::string& text) { notices.push_back(text); });
  }

  std::string variant(std::string_view op, const SpecList& inputs, const TensorSpec& output,
                      const Attributes& attributes = {}) {
    const auto found = find_kernel(vendor_engine(), {.op = op,
                                                     .attributes = attributes,
                                                     .inputs = inputs,
                                                     .outputs = {&output, 1},
                                                     .device = *device});
    return std::string(found.row->variant);
  }
  std::string product(int64_t n) {
    const DType f32 = DType::f32;
    return variant("matmul", {{Shape{64, 32}, f32}, {Shape{32, n}, f32}, {Shape{n}, f32}},
                   {Shape{64, n}, f32}, {{"activation", "relu"}});
  }
  std::string convolution(int64_t height) {
    const DType f32 = DType::f32;
    return variant("conv2d", {{Shape{2, height, 8, 16}, f32}, {Shape{32, 1, 1, 16}, f32}},
                   {Shape{2, height, 8, 32}, f32});
  }
};

TEST_CASE("a product with a bias is asked for with an address of the bias") {
  fake_cuda::reset();
  Listened on;
  CHECK(on.product(16) == "cuBLASLt");
  CHECK(on.notices.empty());
}

TEST_CASE("whatever cuBLASLt's heuristic answers, another kernel is taken and it is told once") {
  for (const auto status : {15 /* not supported */, 7 /* invalid value */, 14 /* internal */}) {
    fake_cuda::reset();
    fake_cuda::set_heuristic(status);
    Listened on;
    for (const int64_t n : {16, 24, 16}) CHECK(on.product(n) == "plain");
    REQUIRE(on.notices.size() == 1);
    CHECK(on.notices[0] ==
          "cuBLASLt does not run matmul(f32[64, 32], f32[32, 16], f32[16]), another kernel does: "
          "cuBLASLt: choosing an algorithm: a status");
  }
  fake_cuda::reset();
}

TEST_CASE("convolutions without a plan of cuDNN are run by another kernel, with cuDNN's reason") {
  fake_cuda::reset();
  fake_cuda::set_plans(
      {{.deterministic = false}, {.builds = false}, {.workspace = int64_t{1} << 30}});
  Listened on;
  CHECK(on.convolution(8) == "plain");
  REQUIRE(on.notices.size() == 1);
  CHECK_THAT(on.notices[0], Contains("cuDNN does not run conv2d(f32[2, 8, 8, 16]") &&
                                Contains("engine 2") && Contains("1024 MiB of workspace"));
  CHECK(on.convolution(8) == "plain");  // remembered
  REQUIRE(on.notices.size() == 1);
  fake_cuda::set_plans({{.builds = false}});
  CHECK(on.convolution(12) == "plain");
  REQUIRE(on.notices.size() == 2);
  CHECK_THAT(on.notices[1], Contains("engine 0") && Contains("a status"));
  fake_cuda::set_plans({{.deterministic = false}});
  for (const int64_t height : {16, 20}) CHECK(on.convolution(height) == "plain");
  REQUIRE(on.notices.size() == 3);
  CHECK_THAT(on.notices[2], Contains("no plan that follows the rules"));
  fake_cuda::reset();
}

TEST_CASE("recurrent networks that cuDNN refuses are made of other kernels, with cuDNN's reason") {
  fake_cuda::reset();
  fake_cuda::set_rnn_time(-1);
  Listened on;
  const DType f32 = DType::f32;
  const TensorSpec w{Shape{32, 8}, f32}, b{Shape{32}, f32};
  const SpecList inputs{{Shape{2, 3, 8}, f32}, w, w, b, b, absent_spec(), absent_spec()};
  const Attributes attributes{{"kind", "lstm"}, {"reverse", false}, {"kept_bytes", int64_t{0}}};
  const SpecList outputs = find_op("recurrent_network")->output_specs(inputs, attributes);
  for (int layer = 0; layer < 2; ++layer) {
    CHECK_FALSE(kept_bytes(vendor_engine(), {.op = "recurrent_network",
                                             .attributes = attributes,
                                             .inputs = inputs,
                                             .outputs = outputs,
                                             .device = *on.device}));
  }
  REQUIRE(on.notices.size() == 1);
  CHECK_THAT(on.notices[0], Contains("cuDNN does not run recurrent_network(f32[2, 3, 8]") &&
                                Contains("cuDNN: ") && Contains("a status"));
  fake_cuda::reset();
}

TEST_CASE("what a build or a device lacks is said where kernels are listed") {
  fake_cuda::reset();
  std::vector<KernelRow> rows(vendor_engine().kernels,
                              vendor_engine().kernels + vendor_engine().kernel_count);
  const auto lacking = [](Device* device) {
    return std::string(device == nullptr ? "" : "needs sm_80 or newer");
  };
  rows.insert(rows.begin(), {.op = "attention", .variant = "cuDNN", .missing = lacking});
  Engine engine = vendor_engine();
  engine.kernels = rows.data();
  engine.kernel_count = rows.size();
  CHECK(describe_kernels(engine, nullptr) ==
        std::vector<std::string>{"matmul: cuBLASLt", "conv2d: cuDNN", "attention: cuDNN",
                                 "fused_elementwise: interpreter"});
  CHECK(describe_kernels(engine, Listened().device.get())[2] ==
        "attention: own (not cuDNN: needs sm_80 or newer)");
}

// The sentence about the kernels of the network of tests/golden/mlp, and the notices of its plans.
std::string kernels(std::vector<std::string>& notices) {
  auto experiment = load_config<Experiment>(
      {.files = {std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/mlp/relu-adamw.yaml"},
       .overrides = {"device=cpu", "data.train.path=" + std::string(DLTRAIN_SOURCE_DIR) +
                                       "/tests/golden/mlp/batches.safetensors"}});
  const Engine& engine = vendor_engine();
  const Session session = open_session(
      experiment,
      {.engines = {.cpu = &engine, .reference = &reference_engine()}, .log_notices = false});
  session.executor->device().notices().report_to(
      [&](const std::string& text) { notices.push_back(text); });
  return kernels_of_step(session);
}

TEST_CASE("a run knows the variants of its step, and why they are not the best") {
  fake_cuda::reset();
  std::vector<std::string> notices;
  const std::string best = kernels(notices);
  CHECK_THAT(best,
             Contains("kernels of a step on Fake H200 (sm_90): matmul: ") && Contains(" cuBLASLt"));
  CHECK(best.find("plain") == std::string::npos);
  CHECK(notices.empty());
  fake_cuda::set_heuristic(14);
  const std::string worse = kernels(notices);
  CHECK_THAT(worse, Contains(" plain"));
  CHECK(worse.find("cuBLASLt") == std::string::npos);
  CHECK(notices.size() == 1);
  fake_cuda::reset();
}

}  // namespace

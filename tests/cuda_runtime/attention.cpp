// Attention by cuDNN's plans over a cuDNN of the tests (fake_attention.cpp): op cases against the
// reference, dropout, plans that layers share, and plans on disk.
#include <fmt/format.h>

#include "base/philox.h"
#include "catch.h"
#include "checkpoint/checkpoint.h"
#include "config/load.h"
#include "cuda/makers.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "cuda_runtime/cache_folder.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_attention.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/quiet_step.h"
#include "cuda_runtime/recorded_steps.h"
#include "ops/compare.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

using namespace dltrain;
using fake_cuda::fake_attention;

namespace {

const Engine& attention_engine() {
  static std::vector<KernelRow> rows{
      {.op = "attention", .variant = "cuDNN", .make = make_cudnn_attention},
      {.op = "attention_backward", .variant = "cuDNN", .make = make_cudnn_attention_backward}};
  static const Engine engine = fake_engine_with(rows);
  return engine;
}

// The state at the beginning of a test: counters are 0 and no plan is stored.
struct FreshAttention {
  CacheFolder cache;
  explicit FreshAttention(std::vector<float> milliseconds = {1}) {
    fake_cuda::reset(fake_cuda::Order::eager);
    fake_attention() = {.milliseconds = std::move(milliseconds)};
  }
};

// A layer of packed tokens: its forward and its backward.
struct SharedLayer {
  std::unique_ptr<Kernel> forward, backward;
};
SharedLayer make_layer(Device& device, const std::string& path, double dropout = 0,
                       int64_t tokens = 4) {
  const Attributes attributes{{"heads", int64_t{2}},
                              {"kv_heads", int64_t{2}},
                              {"dropout", dropout},
                              {"stream", static_cast<int64_t>(random_stream(path))}};
  const TensorSpec x{Shape{2, tokens, 48}, DType::bf16}, y{Shape{2, tokens, 16}, DType::bf16},
      sums{Shape{2, 2, tokens}, DType::f32},
      state{Shape{static_cast<int64_t>(sizeof(StepState))}, DType::u8};
  SpecList inputs{x}, gradients{y, y, sums, x};
  if (dropout > 0) inputs.push_back(state), gradients.push_back(state);
  const TensorSpec outputs[] = {y, sums};
  return {make_cudnn_attention({.op = "attention",
                                .attributes = attributes,
                                .inputs = inputs,
                                .outputs = outputs,
                                .device = device}),
          make_cudnn_attention_backward({.op = "attention_backward",
                                         .attributes = attributes,
                                         .inputs = gradients,
                                         .outputs = {&x, 1},
                                         .device = device})};
}

TEST_CASE("attention by cuDNN agrees with the reference, masks and queries without keys included") {
  const FreshAttention fresh;
  // TF32 is a form of f32.
  const auto wanted = [](const OpCase& c) {
    return c.op.starts_with("attention") && !rounds_factors(c);
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    int by_cudnn = 0, masked = 0;
    for (const CaseReport& r :
         compare_engine(attention_engine(), reference_engine(), wanted, dtype)) {
      INFO(r.op_case->name << ", " << dtype_name(dtype));
      CHECK(r.fault == "");
      by_cudnn += r.variant == "cuDNN" ? 1 : 0;
      masked += r.variant == "cuDNN" && r.op_case->attributes.boolean("masked") ? 1 : 0;
    }
    CHECK(by_cudnn >= 10);
    CHECK(masked >= 6);
  }
}

// The result of a forward with dropout 0.25.
HostTensor dropped(OpRunner& runner, const StepState& state, const std::string& path) {
  OpRun run{.op = "attention",
            .attributes = {{"heads", int64_t{2}},
                           {"kv_heads", int64_t{2}},
                           {"dropout", 0.25},
                           {"stream", static_cast<int64_t>(random_stream(path))}},
            .inputs = {random_tensor({Shape{3, 16, 48}, DType::bf16}, "x")}};
  HostTensor& in = run.inputs.emplace_back(
      TensorSpec{Shape{static_cast<int64_t>(sizeof(StepState))}, DType::u8});
  std::memcpy(in.data.data(), &state, sizeof state);
  const OpResult result = runner.run(run);
  CHECK(result.faults.empty());
  CHECK(result.variant == "cuDNN");
  return result.outputs[0];
}

TEST_CASE("dropout by cuDNN depends on seed, layer, step and micro-batch, and on nothing else") {
  const FreshAttention fresh;
  OpRunner runner(attention_engine());
  const HostTensor first = dropped(runner, kCaseState, "layers.1");
  CHECK(dropped(runner, kCaseState, "layers.1").data == first.data);
  StepState other = kCaseState;
  other.in.learning_rate = 7;
  CHECK(dropped(runner, other, "layers.1").data == first.data);
  CHECK(dropped(runner, kCaseState, "layers.2").data != first.data);
  ++other.in.step;
  CHECK(dropped(runner, other, "layers.1").data != first.data);
  other = kCaseState;
  ++other.in.seed;
  CHECK(dropped(runner, other, "layers.1").data != first.data);
  other = kCaseState;
  other.in.sample_offset += 3;
  CHECK(dropped(runner, other, "layers.1").data != first.data);
}

TEST_CASE("the backward of dropout by cuDNN has the seed of its forward") {
  const FreshAttention fresh;
  const auto device = attention_engine().open(0);
  const auto stream = device->make_stream();
  const SharedLayer layer = make_layer(*device, "layers.1", 0.25);
  REQUIRE(layer.forward != nullptr);
  REQUIRE(layer.backward != nullptr);
  Buffer memory(*device, 1 << 20), state(*device, sizeof(StepState));
  void* const m = memory.data();
  void* const tensors[] = {m, m, m, m, state.data()};
  const auto run = [&](int64_t step) {
    StepState values = kCaseState;
    values.in.step = step;
    device->copy(state.data(), &values, sizeof values, *stream);
    const Buffer workspace(*device, 1 << 16);
    const std::span<void* const> all(tensors);
    BoundCall(*layer.forward, all.subspan(3), all.first(2), workspace.data()).run(*stream);
    BoundCall(*layer.backward, all, all.first(1), workspace.data()).run(*stream);
    stream->synchronize();
  };
  run(3);
  run(4);
  const std::vector<uint64_t>& seeds = fake_attention().seeds;
  REQUIRE(seeds.size() == 4);
  CHECK(seeds[0] == seeds[1]);
  CHECK(seeds[2] == seeds[3]);
  CHECK(seeds[0] != seeds[2]);
}

TEST_CASE("equal layers share one plan, which the next process reads from disk") {
  const FreshAttention fresh;
  const auto make_model = [&](double dropout) {
    const auto device = attention_engine().open(0);
    std::vector<SharedLayer> layers;
    for (int i = 0; i < 12; ++i) {
      layers.push_back(make_layer(*device, fmt::format("layers.{}", i), dropout));
      CHECK(layers.back().forward != nullptr);
      CHECK(layers.back().backward != nullptr);
    }
  };
  for (const double dropout : {0.0, 0.25}) {
    fake_attention() = {};
    make_model(dropout);
    CHECK(fake_attention().plans == 2);
    CHECK(fake_attention().builds == 2);
    CHECK(fake_attention().restored == 0);
    make_model(dropout);
    CHECK(fake_attention().builds == 2);
    CHECK(fake_attention().restored == 2);
  }
  CHECK(fresh.cache.files() == 4);
  fresh.cache.damage();
  fake_attention() = {};
  make_model(0);
  CHECK(fake_attention().builds == 2);
  // Another problem has a plan of its own.
  const auto device = attention_engine().open(0);
  const SharedLayer four = make_layer(*device, "a"), five = make_layer(*device, "b", 0, 5);
  CHECK(fake_attention().builds == 4);
}

TEST_CASE("autotune keeps the fastest plan of attention, and the next process builds none") {
  const FreshAttention fresh({5, -1, 3, 4});
  for (const bool again : {false, true}) {
    const auto device = attention_engine().open(0);
    device->set_autotune(Autotune::quick);
    const SharedLayer layer = make_layer(*device, "a", 0.25),
                      other = make_layer(*device, "b", 0.25);
    REQUIRE(layer.forward != nullptr);
    CHECK(layer.forward->workspace_bytes() >= 3 * 1024);
    CHECK(layer.forward->workspace_bytes() < 4 * 1024);
    CHECK((fake_attention().runs > 0) == !again);
    CHECK((fake_attention().builds > 0) == !again);
    fake_attention() = {.milliseconds = {5, -1, 3, 4}};
  }
}

TEST_CASE("with dropout cuDNN takes both directions or neither, and is asked once") {
  const FreshAttention fresh;
  fake_attention().has_backward = false;
  const auto device = attention_engine().open(0);
  CHECK_THROWS_WITH(make_layer(*device, "a"), "cuDNN: no deterministic backward");
  fake_attention().plans = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_WITH(make_layer(*device, "a", 0.25), "cuDNN: no deterministic backward");
  }
  CHECK(fake_attention().plans <= 4);  // one backward; a forward is built again if none uses it
}

// The padded BERT of tests/golden/language in bf16, with two layers.
struct Bert : RecordedSteps {
  Bert(const Engine& engine, std::vector<std::string> overrides,
       const std::filesystem::path& folder = {}, bool resume = false) {
    const std::string place = std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/language/";
    overrides.insert(overrides.begin(), {"device=cpu",  // the place where `engine` is taken
                                         "model.init_from=" + place + "bert.safetensors",
                                         "data.train.path=" + place + "batches.safetensors",
                                         "precision.compute=bf16"});
    auto experiment =
        load_config<Experiment>({.files = {place + "bert.yaml"}, .overrides = overrides});
    Session session =
        open_session(experiment, {.engines = {.cpu = &engine, .reference = &reference_engine()}});
    start_session(session);
    if (resume) {
      const auto latest = folder / "checkpoints" / "latest";
      const CheckpointState state = read_checkpoint_state(latest);
      load_checkpoint(*session.executor, latest, state);
      session.resume_at(state.position());
    }
    train(session, events(),
          {.run_folder = folder, .resolved_config = {}, .handle_signals = false});
  }
};

TEST_CASE("a padded BERT trains by cuDNN's attention as by the own kernel, in quiet steps") {
  const FreshAttention fresh;
  fake_cuda::reset(fake_cuda::Order::late);
  const Bert own(fake_cuda_engine(), {});
  CHECK(fake_attention().runs == 0);
  fake_cuda::reset(fake_cuda::Order::late);
  const Bert found(attention_engine(), {});
  CHECK(fake_attention().plans == 2);
  REQUIRE(found.loss.size() == 20);
  for (size_t i = 0; i < found.loss.size(); ++i) {
    CHECK(found.loss[i] == Approx(own.loss[i]).epsilon(0.02));
  }
  for (size_t i = 4; i + 1 < found.counts.size(); ++i) {
    check_quiet(found.counts[i - 1], found.counts[i]);
  }
}

TEST_CASE("dropout by cuDNN: a repeated, recomputed and resumed run has the same bits") {
  const FreshAttention fresh;
  fake_cuda::reset(fake_cuda::Order::late);
  const std::string dropout = "model.dropout=0.1";
  const Bert whole(attention_engine(), {dropout});
  CHECK(!fake_attention().seeds.empty());
  CHECK(whole.loss != Bert(attention_engine(), {}).loss);
  CHECK(whole.loss == Bert(attention_engine(), {dropout}).loss);
  CHECK(whole.loss == Bert(attention_engine(), {dropout, "memory.recompute=full"}).loss);
  const TemporaryFolder folder;
  const Bert first(attention_engine(),
                   {dropout, "training.max_steps=10", "checkpoint.save_steps=10"}, folder.path());
  const Bert rest(attention_engine(), {dropout}, folder.path(), true);
  std::vector<double> losses = first.loss;
  losses.insert(losses.end(), rest.loss.begin(), rest.loss.end());
  CHECK(losses == whole.loss);
}

}  // namespace

// Training with precision.compute below f32.
#include <bit>
#include <cstring>

#include "passes/autocast.h"
#include "passes/chunk_loss.h"
#include "run/short_run.h"
#include "tensor/low_precision.h"

using namespace dltrain;

namespace {

Variation in(const std::string& precision, const std::string& more = "seed=0") {
  return {.overrides = {"precision.compute=" + precision, more}};
}

// A run with an eval split.
Experiment evaluated(const std::string& layers, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{
      "model.layers=" + layers,
      "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 64}",
      "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
      "optimizer={type: adamw, learning_rate: 0.01}",
      "training={global_batch_size: 16, max_steps: 1}",
      "device=cpu"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return load_config<Experiment>({.files = {}, .overrides = overrides});
}

// Elements of the copies that are not their masters, rounded.
size_t stale_copies(Executor& executor) {
  size_t stale = 0, copies = 0;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (tensor.role != Role::parameter) continue;
    const StateTensor* copy = executor.layout().find(tensor.name, Role::low_precision);
    if (copy == nullptr) continue;
    ++copies;
    std::vector<float> master(static_cast<size_t>(tensor.spec.shape.elements()));
    std::vector<uint16_t> found(master.size());
    executor.read_state(tensor.name, std::as_writable_bytes(std::span(master)));
    executor.read_state(copy->name, std::as_writable_bytes(std::span(found)));
    for (size_t i = 0; i < master.size(); ++i) {
      Bf16 expected;
      from_f32(master[i], expected);
      stale += expected.bits != found[i];
    }
  }
  CHECK(copies > 0);
  return stale;
}

}  // namespace

TEST_CASE("bf16 trains like f32 but for rounding, and gives the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    const ShortRun wide = short_run(layers, in("f32")), low = short_run(layers, in("bf16"));
    INFO(layers << ": losses within " << greatest_difference(low, wide));
    CHECK(greatest_difference(low, wide) < 0.03);
    CHECK(greatest_difference(low, wide) > 1e-6);
    CHECK(low.state.size() == wide.state.size());  // checkpoints hold masters
    CHECK(short_run(layers, in("bf16")).state == low.state);
  }
}

TEST_CASE("tf32 trains like f32 but for rounding, gives the same bits twice, and excepts layers") {
  constexpr const char* kLstm = "[{reshape: [9, 8]}, {lstm: 12}, flatten, {linear: 5}]";
  const auto tf32 = [](const std::string& more = "seed=0") {
    return Variation{.overrides = {"precision.matmul=tf32", more}};
  };
  for (const char* layers : {kMlp, kConvnet, kLstm}) {
    const ShortRun wide = short_run(layers, in("f32")), rounded = short_run(layers, tf32());
    INFO(layers << ": losses within " << greatest_difference(rounded, wide));
    CHECK(greatest_difference(rounded, wide) < 0.01);
    CHECK(greatest_difference(rounded, wide) > 1e-7);
    CHECK(short_run(layers, tf32()).state == rounded.state);
    CHECK(short_run(layers, tf32("memory.recompute=full")).state == rounded.state);
    CHECK(greatest_difference(short_run(layers, tf32("training.micro_batch_size=8")), rounded) <
          (layers == kConvnet ? 1.0 : 0.01));
    // Nothing is left of it where every layer is excepted, and where all compute in 16 bits.
    CHECK(short_run(layers, tf32("precision.overrides={'*': f32}")).state == wide.state);
    const ShortRun low = short_run(layers, in("bf16"));
    CHECK(short_run(layers, in("bf16", "precision.matmul=tf32")).state == low.state);
  }
}

TEST_CASE("recurrent layers compute in tf32 in evaluations too") {
  const auto loss_with = [](const std::string& overrides) {
    Experiment experiment = evaluated("[{reshape: [9, 8]}, {lstm: 12}, flatten, {linear: 5}]",
                                      {"precision={matmul: tf32, overrides: " + overrides + "}",
                                       "optimizer.learning_rate=0", "evaluation.eval_steps=1"});
    Session session = open_session(
        experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
    start_session(session);
    double loss = 0;
    TrainEvents events;
    events.on_evaluation = [&](const EvaluationRecord& record) {
      loss = record.metrics.front().second;
    };
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    return loss;
  };
  const double rounded = loss_with("{layers.3: tf32}"), wide = loss_with("{layers.1: f32}");
  CHECK(rounded != wide);
  CHECK(rounded == Approx(wide).epsilon(0.01));
}

TEST_CASE("patterns may name layers that only training steps have, such as dropout") {
  for (const bool noise : {true, false}) {
    Experiment experiment =
        evaluated(kMlp, {"precision={compute: bf16, overrides: {layers.3: f32}}",
                         "memory={recompute: selective, recompute_layers: layers.3}"});
    CHECK_NOTHROW(open_session(
        experiment,
        {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}, .noise = noise}));
  }
}

TEST_CASE("an excepted layer of a bf16 run computes in f32, and the reverse") {
  const ShortRun wide = short_run(kMlp, in("f32")), low = short_run(kMlp, in("bf16"));
  const auto excepting = [](const char* compute, const char* overrides) {
    return short_run(kMlp, in(compute, fmt::format("precision.overrides={}", overrides)));
  };
  const ShortRun head = excepting("bf16", "{layers.4: f32}");
  CHECK(head.state != low.state);
  CHECK(greatest_difference(head, wide) < 0.03);
  CHECK(excepting("bf16", "{'*': f32}").state == wide.state);
  CHECK(excepting("f32", "{'*': bf16}").state == low.state);
  CHECK(excepting("f32", "{'*': bf16, layers.4: f32}").state == head.state);
}

TEST_CASE("formats and layers that do not fit are refused at their key") {
  const auto refused = [](const std::string& precision) {
    try {
      short_run(kMlp, {.overrides = {"precision=" + precision}});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  const auto says = [&](const std::string& precision, const char* text) {
    INFO(precision << ": " << refused(precision));
    CHECK(refused(precision).find(text) != std::string::npos);
  };
  says("{matmul: tf23}", "tf32");
  says("{overrides: {lm_hed: f32}}", "'lm_hed' matches no layer; they are layers.0 … layers.4");
  says("{overrides: {layers.4: fp8}}", "layers.4: 'fp8' is not a format; give f32, tf32, bf16");
  says("{compute: bf16, overrides: {layers.4: fp16}}", "fp16 needs compute: fp16");
  says("{compute: fp16, overrides: {layers.4: bf16}}", "one 16-bit format");
}

TEST_CASE("logits of a large vocabulary go by chunks in 16 bits as in f32") {
  for (const char* precision : {"f32", "bf16"}) {
    auto experiment = load_config<Experiment>(
        {.files = {},
         .overrides = {"model.layers=[{embedding: {embedding_dim: 4}}, {lm_head: {}}]",
                       "data.train={type: synthetic_tokens, vocab_size: 50257, length: 1024}",
                       "optimizer={type: sgd, learning_rate: 0.1}",
                       "training={global_batch_size: 1, max_steps: 1}", "device=cpu",
                       fmt::format("precision.compute={}", precision)}});
    // Planned, not run.
    const Session session = open_session(
        experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
    size_t greatest = 0;
    for (const Node& node : session.executor->training_program().graph().nodes) {
      if (node.op->name != "softmax_cross_entropy_gradient") continue;
      greatest =
          std::max(greatest,
                   session.executor->training_program().graph().value(node.inputs[0]).spec.bytes());
    }
    INFO(precision);
    CHECK(greatest > 0);
    CHECK(greatest <= kMaxLogitBytes);
  }
}

TEST_CASE("gradients in memory of activations and copies give the same bits") {
  // The scale is too large at first, so that steps are skipped.
  const char* scaled = "precision={compute: fp16, init_scale: 16777216, growth_interval: 3}";
  const char* deep = "[flatten, {linear: 64}, relu, {linear: 48}, gelu, {linear: 5}]";
  const auto check = [](const char* layers, const std::vector<std::string>& overrides) {
    const ShortRun apart = short_run(layers, {.overrides = overrides, .keep_gradients = true});
    const ShortRun shared = short_run(layers, {.overrides = overrides});
    CHECK(shared.losses == apart.losses);
    CHECK(shared.state == apart.state);
  };
  for (const char* precision : {"precision.compute=f32", "precision.compute=bf16", scaled}) {
    for (const char* layers : {kMlp, kConvnet, deep}) {
      INFO(layers << ", " << precision);
      check(layers, {precision});
    }
    // Copies of frozen parameters are written by nobody, so they must lend nothing.
    for (const char* frozen : {"layers.1.*", "layers.3.*", "layers.5.*"}) {
      INFO(frozen << " frozen, " << precision);
      check(deep, {precision, fmt::format("training.freeze=['{}']", frozen)});
    }
  }
}

TEST_CASE("bf16 losses do not depend on how the global batch is cut, but for rounding") {
  const ShortRun whole = short_run(kMlp, in("bf16"));
  const ShortRun cut = short_run(kMlp, in("bf16", "training.micro_batch_size=4"));
  INFO("losses within " << greatest_difference(cut, whole));
  CHECK(greatest_difference(cut, whole) < 0.01);
}

TEST_CASE("fp16 trains like f32 but for rounding, and gives the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    const ShortRun wide = short_run(layers, in("f32")), low = short_run(layers, in("fp16"));
    INFO(layers << ": losses within " << greatest_difference(low, wide));
    CHECK(greatest_difference(low, wide) < 0.01);
    CHECK(greatest_difference(low, wide) > 1e-7);
    CHECK(short_run(layers, in("fp16")).state == low.state);
  }
}

TEST_CASE("a loss scale that is too large is halved until the gradients are finite") {
  auto experiment = load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=[flatten, {linear: 9}, relu, {linear: 5}]",
                     "data.train={type: synthetic, shape: [6], classes: 5, samples: 64}",
                     "optimizer={type: sgd, learning_rate: 0.1}", "logging.logging_steps=1",
                     "training={global_batch_size: 16, max_steps: 12}", "device=cpu",
                     "precision={compute: fp16, init_scale: 16777216, growth_interval: 2}"}});
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  CHECK(session.executor->progress().loss_scale == 16777216);
  std::vector<StepRecord> records;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) { records.push_back(record); };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  REQUIRE(records.size() == 12);
  CHECK(records[0].skipped);
  CHECK(records[0].loss_scale == 8388608);
  size_t skipped = 0;
  for (const StepRecord& record : records) skipped += record.skipped ? 1 : 0;
  CHECK(skipped < 12);
  const Executor::Progress progress = session.executor->progress();
  CHECK(progress.updates == static_cast<int64_t>(12 - skipped));
  CHECK(progress.loss_scale == records.back().loss_scale);
}

TEST_CASE("keys of loss scaling are refused without fp16") {
  const auto load = [](const std::string& precision) {
    load_config<Experiment>(
        {.files = {},
         .overrides = {"model.layers=[{linear: 5}]",
                       "data.train={type: synthetic, shape: [6], classes: 5, samples: 64}",
                       "optimizer={type: sgd, learning_rate: 0.1}",
                       "training={global_batch_size: 16, max_steps: 1}",
                       "precision=" + precision}});
  };
  CHECK_NOTHROW(load("{compute: fp16, init_scale: 1024, growth_interval: 10}"));
  CHECK_THROWS_WITH(load("{compute: bf16, init_scale: 1024}"),
                    Catch::Contains("init_scale needs compute: fp16"));
  CHECK_THROWS_WITH(load("{growth_interval: 10}"),
                    Catch::Contains("growth_interval needs compute: fp16"));
  CHECK_THROWS_WITH(load("{compute: fp16, init_scale: 1000}"),
                    Catch::Contains("1000 is not a power of two"));
}

TEST_CASE("copies are the rounded masters after initial values, writes and steps") {
  auto experiment = load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=[flatten, {linear: 9}, relu, {linear: 5}]",
                     "data.train={type: synthetic, shape: [6], classes: 5, samples: 64}",
                     "optimizer={type: sgd, learning_rate: 0.1}",
                     "training={global_batch_size: 16, max_steps: 3}", "device=cpu",
                     "precision.compute=bf16"}});
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  CHECK(stale_copies(*session.executor) == 0);
  const std::vector<float> bias{1.0f, 2.5f, 1.0f / 3, -0.1f, 1e-5f};
  session.executor->write_state("layers.3.bias", std::as_bytes(std::span(bias)));
  CHECK(stale_copies(*session.executor) == 0);
  train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  CHECK(stale_copies(*session.executor) == 0);
}

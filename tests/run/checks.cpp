// The sanity suite: every check passes on a sound experiment and fails on one that is broken in
// just what it looks for. checks_inputs_matter.cpp has more of one of them.
#include <cmath>

#include "checks/suggestions.h"
#include "run/checked.h"
#include "shared/make_kernel.h"
#include "tensor/safetensors.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// The loss of an experiment times −1.
struct NegativeLoss final : Loss {
  explicit NegativeLoss(std::unique_ptr<Loss> of) : of_(std::move(of)) { kind = "negative"; }
  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo& info) const override {
    LossOutput out = of_->emit(c, output, targets, info);
    const std::string dtype(dtype_name(c.compute()));
    const ValueId sum = c.builder().emit1("cast", {out.loss_sum}, {{"dtype", dtype}});
    const ValueId less = c.builder().emit1("affine", {sum}, {{"scale", -1.0}, {"shift", 0.0}});
    out.loss_sum = c.builder().emit1("cast", {less}, {{"dtype", std::string("f64")}});
    return out;
  }
  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    return of_->targets(output, info);
  }
  int64_t classes(const TensorSpec& output) const override { return of_->classes(output); }
  TargetKind target_kind(const TargetInfo& info) const override { return of_->target_kind(info); }
  std::unique_ptr<Loss> of_;
};

}  // namespace

TEST_CASE("every check passes on a sound experiment") {
  const auto results = judged(run_checks(options_of({})));
  CHECK(results.size() == 13);
  for (const CheckResult& result : results) {
    INFO(result.name << ": " << result.detail);
    CHECK(result.outcome == CheckOutcome::pass);
  }
}

TEST_CASE("models that are too large for the float64 engine are checked in f32") {
  const CsvFile csv("r.csv", 96, [](int, auto uniform) {
    const double a = uniform() - 0.5, b = uniform() - 0.5;
    return fmt::format("{},{},{}", a, b, 2 * a * b - a);
  });
  for (const Setup& setup : {Setup{},
                             Setup{.data = csv.section(", task: regression"),
                             .layers = "[linear: 16, linear: 1]",
                             .overrides = {"loss=mse"}},
                             Setup{.overrides = {"precision.compute=bf16"}}}) {
    CheckOptions options = options_of(setup);
    options.most_exact_flops = 0;
    for (const auto& [check, fewest] : {std::pair<Check, int64_t>{check_initial_loss, 32},
                                        {check_target_leak, 1},
                                        {check_sample_independence, 2}}) {
      const CheckResult result = check(options, 32);
      INFO(result.detail);
      CHECK(result.outcome == CheckOutcome::pass);
      CHECK(prepare_forward(options, 32, fewest)->session.batch.micro_batch == fewest);
    }
    CHECK(check_gradient(options, 32).outcome == CheckOutcome::skip);
  }
  // They fail as in f64.
  CheckOptions joined = options_of({.first_layer = [](LayerContext& c, ValueId x) {
    const ValueId mean = c.builder().emit1(
        "reduce", {x}, {{"kind", std::string("mean")}, {"axes", std::vector<int64_t>{0}}});
    return c.builder().emit1("sub", {x, mean});
  }});
  joined.most_exact_flops = 0;
  CHECK(check_sample_independence(joined, 32).outcome == CheckOutcome::fail);
}

TEST_CASE("experts that get no token are named") {
  const std::string experts =
      "{moe: {num_experts: 4, experts_per_token: 2, intermediate_size: 8}, name: mixture";
  const auto layers = [&](const char* more) {
    return "[linear: 16, relu, " + experts + more + "}, linear: 3]";
  };
  const auto results = judged(run_checks(options_of({.layers = layers("")})));
  CHECK(results.size() == 14);
  for (const CheckResult& result : results) {
    INFO(result.name << ": " << result.detail);
    CHECK(result.outcome == CheckOutcome::pass);
  }
  // All probabilities are equal, so that the first experts are chosen.
  CHECK_THAT(
      failure(check_dead_experts, {.layers = layers(", weight_init: zeros")}),
      Contains("2 of 4 experts get no token of the first batch: 2 of mixture, 3 of mixture"));
  CHECK(check_dead_experts(options_of({.layers = layers("")}), 4).outcome == CheckOutcome::skip);
}

TEST_CASE("checks of many steps take fewer samples where time is short, or are passed over") {
  CheckOptions options = options_of({});
  CHECK(samples_in_time(options, 32, 1, 100) == 32);
  const int64_t some = samples_in_time(options, 32, 1, 1 << 26);
  CHECK(some < 32);
  options.most_seconds = 0;
  CHECK(samples_in_time(options, 32, 1, 100) == 0);
  for (const Check check : {check_overfit, check_inputs_matter}) {
    const CheckResult result = check(options, 32);
    CHECK(result.outcome == CheckOutcome::skip);
    CHECK_THAT(result.detail, Contains("check a smaller model"));
  }
  CHECK(check_gradient(options, 32).outcome == CheckOutcome::skip);
}

TEST_CASE("batch norm of vectors never gets a batch of one") {
  CheckOptions options =
      options_of({.layers = "[linear: 16, batch_norm, relu, linear: 4]", .overrides = {}});
  options.most_exact_flops = 3e4;  // too few for four samples in float64
  for (const CheckResult& result : judged(run_checks(options))) {
    INFO(result.name << ": " << result.detail);
    const bool may_skip = result.name == "gradient check";
    CHECK((result.outcome == CheckOutcome::pass ||
           (may_skip && result.outcome == CheckOutcome::skip)));
  }
}

TEST_CASE("a check that breaks down is no failure of the experiment") {
  CheckOptions options = options_of({});
  int loads = 0;
  const auto code_of = [&](ExitCode thrown) {
    CheckOptions broken = options;
    loads = 0;
    broken.load = [&, thrown](const std::vector<std::string>& extra) {
      if (loads++ == 1) fail(thrown, "broken on purpose");
      return options.load(extra);
    };
    const auto results = judged(run_checks(broken));
    const CheckResult& second = results.at(1);
    CHECK(second.detail == "broken on purpose");
    CHECK(second.failed() == (thrown == ExitCode::data));
    CHECK(second.outcome == (thrown == ExitCode::data ? CheckOutcome::fail : CheckOutcome::error));
    return second.code;
  };
  CHECK(code_of(ExitCode::internal) == ExitCode::internal);
  CHECK(code_of(ExitCode::usage) == ExitCode::internal);  // the check's own changes
  CHECK(code_of(ExitCode::memory) == ExitCode::memory);
  CHECK(code_of(ExitCode::data) == ExitCode::ok);  // a sample that cannot be read
}

TEST_CASE("every check passes or is skipped on a regression of several numbers") {
  const CsvFile csv("r.csv", 96, [](int, auto uniform) {
    const double a = uniform() - 0.5, b = uniform() - 0.5;
    return fmt::format("{},{},{}", a, b, 2 * a * b - a);
  });
  for (const CheckResult& result :
       judged(run_checks(options_of({.data = csv.section(", task: regression"),
       .layers = "[linear: 16, tanh, linear: 1]",
       .overrides = {"loss=mse"}})))) {
    INFO(result.name << ": " << result.detail);
    CHECK(result.outcome ==
          (result.name == "dead activations" ? CheckOutcome::skip : CheckOutcome::pass));
  }
}

TEST_CASE("check of the data: inputs or targets that never vary, batches of one class") {
  const auto number = [](int, auto uniform) { return fmt::format("{}", uniform()); };
  const CsvFile same_target("a.csv", 40, [&](int i, auto u) { return number(i, u) + ",1"; });
  CHECK_THAT(failure(check_data, {.data = same_target.section()}),
             Contains("the target is the same"));
  const CsvFile same_input("b.csv", 40, [](int i, auto) { return fmt::format("0.5,{}", i % 2); });
  CHECK_THAT(failure(check_data, {.data = same_input.section()}), Contains("input is the same"));
  const CsvFile sorted("c.csv", 400,
                       [&](int i, auto u) { return number(i, u) + fmt::format(",{}", i / 200); });
  CHECK_THAT(failure(check_data, {.data = sorted.section(", shuffle: false")}),
             Contains("set data.train.shuffle"));
  passes(check_data, {.data = sorted.section()});
}

TEST_CASE("check of unused parameters: one that nothing reads, one after dead units") {
  CHECK_THAT(failure(check_unused_parameters, {.first_layer =
                                                   [](LayerContext& c, ValueId x) {
                                                     c.parameter("forgotten", {3},
                                                                 Initializer::zeros());
                                                     return x;
                                                   }}),
             Contains("of 5 parameters 1 do not reach the loss") && Contains("forgotten"));
  CHECK_THAT(
      failure(check_unused_parameters,
              {.first_layer =
                   [](LayerContext& c, ValueId x) {
                     const ValueId p = c.parameter("lost", {6}, Initializer::zeros());
                     const ValueId sum = c.builder().emit1("add", {x, p});
                     return c.builder().emit1("affine", {sum}, {{"scale", 0.0}, {"shift", 1.0}});
                   }}),
      Contains("have a gradient of zeros"));
}

TEST_CASE("check of the loss at init: opinions of an untrained model, numbers far away") {
  CHECK_THAT(
      failure(check_initial_loss,
              {.data = "{type: synthetic, shape: [6], classes: 3, samples: 96, noise: 200}"}),
      Contains("−log(1/3) = 1.0986"));
  // A frequent class, and a batch of one sample, say nothing about the model.
  const CsvFile rare("rare.csv", 64, [](int i, auto uniform) {
    return fmt::format("{},{},{}", uniform(), uniform(), i % 20 == 0 ? "yes" : "no");
  });
  for (const int seed : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(seed);
    const auto options = options_of({.data = rare.section(),
                                     .layers = "[linear: 16, relu, linear: 2]",
                                     .overrides = {fmt::format("seed={}", seed)}});
    CHECK(check_initial_loss(options, 32).outcome == CheckOutcome::pass);
    CHECK(check_initial_loss(options, 1).outcome == CheckOutcome::pass);
  }
  const CsvFile far("far.csv", 64, [](int, auto uniform) {
    return fmt::format("{},{}", uniform(), 1000 + uniform());
  });
  const Setup setup{.data = far.section(", task: regression"),
                    .layers = "[linear: 1]",
                    .overrides = {"loss=mse"}};
  CHECK_THAT(failure(check_initial_loss, setup), Contains("scale the targets"));
}

TEST_CASE("check of dead activations: a bias of -10 under a ReLU") {
  CHECK_THAT(
      failure(check_dead_activations,
              {.layers = "[relu, linear: 3]",
               .first_layer =
                   [](LayerContext& c, ValueId x) {
                     return c.builder().emit1("affine", {x}, {{"scale", 1.0}, {"shift", -10.0}});
                   }}),
      Contains("at most 100.0 %"));
  CHECK(check_dead_activations(options_of({.layers = "[linear: 3]"}), 32).outcome ==
        CheckOutcome::skip);
}

TEST_CASE("check of target leaks: an input that is the target") {
  const CsvFile leak("leak.csv", 64, [](int, auto uniform) {
    const int label = uniform() < 0.3 ? 2 : uniform() < 0.5 ? 1 : 0;
    return fmt::format("{},{},{},{}", uniform(), 3 - 2 * label, uniform(), label);
  });
  CHECK_THAT(failure(check_target_leak, {.data = leak.section()}),
             Contains("element 1 of input follows the target exactly"));
  // A label that does not count hides nothing.
  const TemporaryFolder folder;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  for (int i = 0; i < 64; ++i) {
    labels.push_back(i == 5 ? kIgnoredLabel : i % 3 / 2);
    inputs.push_back(static_cast<float>(i % 3 / 2));
  }
  FileWriter file(folder / "leak.safetensors");
  SafetensorsWriter writer(file,
                           {{"x", {Shape{64, 1}, DType::f32}}, {"y", {Shape{64}, DType::i32}}});
  writer.write("x", std::as_bytes(std::span(inputs)));
  writer.write("y", std::as_bytes(std::span(labels)));
  writer.finish();
  file.close();
  CHECK_THAT(failure(check_target_leak,
                     {.data = fmt::format("{{type: tensors, path: {}, inputs: x, targets: y}}",
                                          (folder / "leak.safetensors").string()),
                      .layers = "[linear: 1]",
                      .overrides = {"loss=binary_cross_entropy"}}),
             Contains("element 0 of input follows the target exactly"));
}

TEST_CASE("check of independence: a layer that looks at the other samples") {
  CHECK_THAT(failure(check_sample_independence, {.first_layer =
                                                     [](LayerContext& c, ValueId x) {
                                                       const ValueId mean = c.builder().emit1(
                                                           "reduce", {x},
                                                           {{"kind", std::string("mean")},
                                                            {"axes", std::vector<int64_t>{0}}});
                                                       return c.builder().emit1("sub", {x, mean});
                                                     }}),
             Contains("expected 0"));
}

TEST_CASE("check of independence: models with batch norm are looked at in evaluation") {
  Setup setup{.layers = "[linear: 16, batch_norm, relu, dropout: 0.5, linear: 3]",
              .overrides = {"data.train.mixup={}", "evaluation.metrics=[accuracy, f1]"}};
  passes(check_sample_independence, setup);
  setup.first_layer = [](LayerContext& c, ValueId x) {
    const ValueId mean = c.builder().emit1(
        "reduce", {x}, {{"kind", std::string("mean")}, {"axes", std::vector<int64_t>{0}}});
    return c.builder().emit1("sub", {x, mean});
  };
  CHECK_THAT(failure(check_sample_independence, setup),
             Contains("running statistics of batch_norm") && Contains("expected 0"));
}

TEST_CASE("gradient check: a layer whose gradient is wrong") {
  CHECK_THAT(
      failure(check_gradient, {.layers = "[linear: 3]",
                               .first_layer =
                                   [](LayerContext& c, ValueId x) {
                                     const ValueId p = c.parameter("p", {6}, Initializer::ones());
                                     const ValueId y = c.builder().emit1("mul", {x, p});
                                     // relu without a gradient rule
                                     const ValueId z = c.builder().emit1("relu_backward", {y, y});
                                     return c.builder().emit1("add", {y, z});
                                   }}),
      Contains("layers.0.p"));
}

TEST_CASE("overfitting: set-ups that are sound, but keep the loss of training up") {
  const CsvFile line("line.csv", 200, [](int, auto uniform) {
    const double x = uniform();  // explains a part of the target
    return fmt::format("{},{}", x, x + 0.5 * uniform());
  });
  const Setup sound[] = {
      {.layers = "[linear: 64, relu, dropout: 0.5, linear: 64, relu, dropout: 0.5, linear: 3]"},
      {.overrides = {"loss={type: cross_entropy, label_smoothing: 0.3}"}},
      {.overrides = {"data.train.mixup={}"}},
      {.overrides = {"data.train.mixup={}", "loss={type: cross_entropy, label_smoothing: 0.1}"}},
      // The teacher is not asked: no such file is there.
      {.overrides = {"loss={type: distillation, teacher: nowhere, temperature: 4, alpha: 0.9}"}},
      {.overrides = {"loss={type: cross_entropy, class_weights: [1, 5, 0.2]}"}},
      {.overrides = {"loss={type: cross_entropy, z_loss: 0.01, label_smoothing: 0.1}"}},
      {.layers = "[linear: 3]"},
      {.data = line.section(", task: regression"),
       .layers = "[linear: 1]",
       .overrides = {"loss=mse"}},
      {.overrides = {"optimizer={type: adamw, learning_rate: 3.0e-4}"}},
      {.overrides = {"optimizer={type: sgd, learning_rate: 5, momentum: 0.9}"}},
      {.layers = "[linear: 16, batch_norm, relu, linear: 3]"},
  };
  for (const Setup& setup : sound) {
    CAPTURE(setup.layers, setup.overrides);
    passes(check_overfit, setup);
  }
}

TEST_CASE("overfitting: what cannot learn") {
  failure(check_overfit, {.overrides = {"optimizer={type: sgd, learning_rate: 1.0e-9}"}});
  failure(check_overfit, {.overrides = {"optimizer={type: sgd, learning_rate: 1.0e+6}"}});
  // All is frozen but a bias.
  failure(check_overfit,
          {.overrides = {"training={global_batch_size: 32, max_steps: 50, freeze: [\"layers.0.*\", "
                         "layers.2.weight]}"}});
  // Nothing of the inputs reaches the first weights.
  failure(check_overfit, {.first_layer = [](LayerContext& c, ValueId x) {
            return c.builder().emit1("affine", {x}, {{"scale", 0.0}, {"shift", 1.0}});
          }});
  const auto negate = [](Experiment& experiment) {
    experiment.loss = std::make_unique<NegativeLoss>(std::move(experiment.loss));
  };
  CHECK_THAT(failure(check_overfit, {.change = negate}), Contains("is its sign right?"));
  const CsvFile line("line.csv", 64, [](int, auto uniform) {
    const double x = uniform();
    return fmt::format("{},{}", x, 2 * x);
  });
  CHECK_THAT(failure(check_overfit, {.data = line.section(", task: regression"),
                                     .layers = "[linear: 1]",
                                     .overrides = {"loss=mse"},
                                     .change = negate}),
             Contains("is its sign right?"));
  // Inputs too small to be seen: the bias alone learns the mean of the targets.
  failure(check_overfit, {.data = line.section(", task: regression, scale: 1.0e-9"),
                          .layers = "[linear: 1]",
                          .overrides = {"loss=mse"}});
}

TEST_CASE("checks of gradients and kernels pass in every precision, and with adapters of dora") {
  for (const char* change : {"precision.compute=bf16", "precision.compute=fp16",
                             "model.lora={rank: 2, variant: dora}"}) {
    const CheckOptions options = options_of({.overrides = {change}});
    for (const Check check : {check_gradient, check_kernels}) {
      const CheckResult result = check(options, 4);
      INFO(change << ": " << result.name << ": " << result.detail);
      CHECK(result.outcome == CheckOutcome::pass);
    }
  }
}

TEST_CASE("check of kernels: one of the CPU that is wrong") {
  static const OpDef kOp[]{
      {.name = "test_scale",
       .doc = "y = x",
       .signature = "x[*] -> y[*]",
       .gradient =
           [](const GradientRequest& r) {
             return std::vector{r.emitter.emit1("test_scale", {r.output_gradients[0]})};
           }},
      {.name = "test_lost",
       .doc = "y = x",
       .signature = "x[*] -> y[*]",
       .gradient =
           [](const GradientRequest& r) {
             return std::vector{r.emitter.emit1("test_nan", {r.output_gradients[0]})};
           }},
      {.name = "test_nan", .doc = "y = x", .signature = "x[*] -> y[*]"}};
  static const auto kernel = []<typename T>(T factor) {
    return [factor](const KernelRequest& request) {
      return make_kernel(
          [factor, count = request.inputs[0].shape.elements()](const Bindings& call, Stream&) {
            for (int64_t i = 0; i < count; ++i) call.output<T>(0)[i] = factor * call.input<T>(0)[i];
          });
    };
  };
  static constexpr auto kSame = [](const KernelRequest& request) { return kernel(1.0)(request); };
  static const KernelRow kRight[]{
      {"test_scale", "right", kSame}, {"test_lost", "right", kSame}, {"test_nan", "right", kSame}};
  static const KernelRow kWrong[]{
      {"test_scale", "wrong", [](const KernelRequest& request) { return kernel(1.02f)(request); }},
      {"test_lost", "right", [](const KernelRequest& request) { return kernel(1.0f)(request); }},
      {"test_nan", "wrong",
       [](const KernelRequest& request) { return kernel(std::nanf(""))(request); }}};
  add_ops(kOp);
  add_kernels("reference", kRight);
  add_kernels("cpu", kWrong);
  const auto failure_of = [](const char* op) {
    return failure(check_kernels, {.first_layer = [op](LayerContext& c, ValueId x) {
                     const ValueId w = c.parameter("w", {6}, Initializer::ones());
                     const ValueId y = c.builder().emit1("mul", {x, w});
                     return c.builder().emit1(op, {y});
                   }});
  };
  CHECK_THAT(failure_of("test_scale"), Contains("tolerance 1e-02"));
  // The gradients of later layers, which are right, do not hide one that is NaN.
  CHECK_THAT(failure_of("test_lost"), Contains("nan of their norm (layers.0.w)"));
}

TEST_CASE("check of update sizes: a learning rate that is far too high or too low is a note") {
  const auto outcome = [](const char* optimizer) {
    return check_update_sizes(options_of({.overrides = {optimizer}}), 32);
  };
  // Adam changes each element by about the rate, here of weights of about 0.2 and 0.1.
  const CheckResult usual = outcome("optimizer={type: adam, learning_rate: 1.0e-3}");
  CHECK(usual.outcome == CheckOutcome::pass);
  CHECK_THAT(usual.detail, Contains("after 10 steps one step changes the weights by 0.00"));
  const CheckResult high = outcome("optimizer={type: adam, learning_rate: 1}");
  CHECK(high.outcome == CheckOutcome::note);
  CHECK_THAT(high.detail, Contains("too high"));
  CHECK_THAT(outcome("optimizer={type: adam, learning_rate: 1.0e-10}").detail, Contains("too low"));
  const CheckResult exploding = outcome("optimizer={type: sgd, learning_rate: 1.0e+30}");
  CHECK(exploding.outcome == CheckOutcome::note);
  CHECK_THAT(exploding.detail, Contains("too high"));
}

TEST_CASE("check of resuming: a model that is another one the second time") {
  int built = 0;
  CHECK_THAT(
      failure(check_resume,
              {.first_layer =
                   [&built](LayerContext& c, ValueId x) {
                     const double scale = 1 + 0.01 * ++built;
                     return c.builder().emit1("affine", {x}, {{"scale", scale}, {"shift", 0.0}});
                   }}),
      Contains("bytes of state differ"));
}

TEST_CASE("advice on clipping knows recurrent layers in one node, as GPUs have them") {
  Suggestions suggestions;
  StepGraph graph;
  Node network;
  network.op = find_op("recurrent_network");
  graph.graph.nodes.push_back(network);
  GraphBuilder builder(graph.graph);
  suggestions.probe()(builder, graph);
  const CheckOptions options = options_of({});
  Experiment experiment = options.load({});
  const Session session = open_session(experiment, {.engines = options.engines});
  CHECK_THAT(fmt::format("{}", fmt::join(suggestions.of(session), "\n")),
             Contains("gradients of models with recurrent layers have spikes"));
}

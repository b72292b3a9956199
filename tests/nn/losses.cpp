// Losses: what they emit, which targets they take, how these count. Values:
// tests/apps/test_losses.py.
#include "base/error.h"
#include "catch.h"
#include "config/bind.h"
#include "config/yaml.h"
#include "nn/loss.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

struct Holder {
  std::unique_ptr<Loss> loss = make_kind(loss_table(), "cross_entropy");
  void describe(Fields& f) { f.one_of("loss", loss, loss_table(), {.doc = "A loss"}); }
};

std::string read(const std::string& text, Holder& holder) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<Source>(Source{"loss.yaml", text});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(holder, *tree, diagnostics);
  return diagnostics.describe();
}

std::unique_ptr<Loss> loss_of(const std::string& text) {
  Holder holder;
  REQUIRE(read("loss: " + text, holder) == "");
  return std::move(holder.loss);
}

std::string errors(const std::string& text) {
  Holder holder;
  return read("loss: " + text, holder);
}

const TensorSpec kLogits{Shape{4, 3}, DType::f32};
const TensorSpec kLabels{Shape{4}, DType::i32};
const TargetInfo kShares{.sample = TensorSpec{Shape{3}, DType::f32}, .label_counts = {}};
const TargetInfo kLabel{.sample = TensorSpec{Shape{}, DType::i32}, .label_counts = {}};

// The ops that a loss emits, with their attributes.
std::string emitted(const Loss& loss, const TargetInfo& info) {
  Graph graph;
  GraphBuilder builder(graph);
  LayerContext context(builder, true, DType::f32, 1);
  const ValueId output = builder.add_value("output", kLogits, Role::input);
  const ValueId targets = builder.add_value("targets", loss.targets(kLogits, info), Role::input);
  loss.emit(context, output, targets, info);
  std::string out;
  for (const Node& node : graph.nodes) {
    out += fmt::format("{} {{{}}} ", node.op->name, to_string(node.attributes));
  }
  return out;
}

TEST_CASE("cross_entropy takes labels or distributions, with weights where it has some") {
  const auto plain = loss_of("cross_entropy");
  CHECK(plain->targets(kLogits, {}) == kLabels);
  CHECK(plain->targets(kLogits, kLabel) == kLabels);
  CHECK(plain->targets(kLogits, kShares) == kLogits);
  CHECK(plain->target_kind(kLabel) == TargetKind::labels);
  CHECK(plain->target_kind(kShares) == TargetKind::distributions);
  CHECK(plain->target_weights(kLogits, kShares).group == 3);
  CHECK(plain->target_weights(kLogits, kLabel).group == 1);
  CHECK_THAT(emitted(*plain, kLabel), Contains("softmax_cross_entropy {ignore_index=-100"));
  CHECK_THAT(emitted(*plain, kShares), Contains("weighted_cross_entropy"));

  const TargetInfo mixed =
      mixed_targets(*plain, kLogits, {.sample = kLabel.sample, .label_counts = {}, .mixed = true});
  CHECK(plain->targets(kLogits, mixed) == kLogits);
  CHECK(plain->target_kind(mixed) == TargetKind::distributions);

  const auto weighted = loss_of("{type: cross_entropy, class_weights: [1, 2, 0.5]}");
  CHECK(weighted->target_weights(kLogits, kLabel).by_label == std::vector<double>{1, 2, 0.5});
  CHECK(weighted->target_weights(kLogits, kShares).by_label.empty());
  CHECK_THAT(emitted(*weighted, kLabel), Contains("class_weights=[1, 2, 0.5]"));

  const auto balanced = loss_of("{type: cross_entropy, balanced_class_weights: true}");
  CHECK(balanced->wants_label_counts());
  const TargetInfo counted{.sample = kLabel.sample, .label_counts = {6, 0, 2}};
  CHECK(balanced->target_weights(kLogits, counted).by_label ==
        std::vector<double>{8.0 / 12, 1, 8.0 / 4});
  CHECK(loss_of("{type: cross_entropy, ignore_index: 2}")->ignored_label() == 2);
  CHECK_FALSE(plain->ignored_label());
}

TEST_CASE("labels that are floats are told as the reason for a single logit") {
  const TensorSpec logit{Shape{4, 1}, DType::f32};
  const TargetInfo number{.sample = TensorSpec{Shape{}, DType::f32}, .label_counts = {}};
  const auto loss = loss_of("cross_entropy");
  CHECK_THROWS_WITH(loss->targets(logit, number),
                    Contains("mse for a number; the targets are floats: save labels"));
  CHECK_THROWS_WITH(loss->targets(logit, kLabel), Catch::EndsWith("mse for a number"));
}

TEST_CASE("targets and outputs have their axes in the same order") {
  const auto targets = [](const char* loss, Shape outputs, Shape sample) {
    const DType dtype = std::string_view(loss) == "mse" ? DType::f32 : DType::i32;
    loss_of(loss)->targets({outputs, DType::f32}, {.sample = TensorSpec{sample, dtype}});
  };
  CHECK_THROWS_WITH(targets("mse", {4, 8, 8, 3}, {3, 8, 8}),
                    Contains("the targets of a sample have shape [3, 8, 8], but the outputs [8, 8, "
                             "3]: end the model with a transpose"));
  CHECK_THROWS_WITH(targets("mse", {4, 2, 9}, {9, 2}), Contains("end the model with a transpose"));
  CHECK_THROWS_WITH(targets("cross_entropy", {4, 10, 12, 2}, {12, 10}),
                    Contains("have shape [12, 10], but the outputs [10, 12]"));
  // Axes that are joined, split or 1 keep the order.
  CHECK_NOTHROW(targets("mse", {4, 192}, {8, 8, 3}));
  CHECK_NOTHROW(targets("mse", {4, 8, 24}, {8, 8, 3}));
  CHECK_NOTHROW(targets("mse", {4, 8, 8, 1}, {1, 8, 8}));
  CHECK_NOTHROW(targets("mse", {4, 1}, {}));
  CHECK_NOTHROW(targets("cross_entropy", {4, 8, 8, 2}, {64}));
  // Class numbers that are floats.
  CHECK_THROWS_WITH(loss_of("cross_entropy")
                        ->targets({Shape{4, 8, 8, 3}, DType::f32},
                                  {.sample = TensorSpec{Shape{8, 8}, DType::f32}}),
                    Contains("class numbers must be integers"));
}

TEST_CASE("a model with outputs for each step is told what gives one answer a sample") {
  const TensorSpec steps{Shape{4, 7, 3}, DType::f32};
  CHECK_THROWS_WITH(loss_of("cross_entropy")->targets(steps, kLabel),
                    Contains("outputs for each of 7 steps") && Contains("type: bert_classifier"));
  CHECK_THROWS_WITH(loss_of("mse")->targets(steps, kShares),
                    Contains("a sample has 3 targets, but the model has 3 outputs for each of 7 "
                             "steps; a recurrent layer needs return_sequences: false"));
}

TEST_CASE("one-hot targets that are integers are told to be class numbers") {
  CHECK_THROWS_WITH(
      loss_of("cross_entropy")->targets(kLogits, {.sample = TensorSpec{Shape{3}, DType::i32}}),
      "integer targets of shape [3] are 3 class numbers, and the model has outputs for 1; one-hot "
      "targets must be floats");
}

TEST_CASE("losses of numbers have targets like the output, one for each element") {
  for (const char* kind : {"mse", "l1", "huber", "smooth_l1", "binary_cross_entropy"}) {
    const auto loss = loss_of(kind);
    CHECK(loss->targets(kLogits, {}) == kLogits);
    CHECK(loss->targets({Shape{4, 1}, DType::f64}, {.sample = TensorSpec{Shape{}, DType::f32}}) ==
          TensorSpec{Shape{4, 1}, DType::f64});
    CHECK(loss->target_weights(kLogits, kShares).group == 1);
    CHECK(loss->classes(kLogits) == 0);
    CHECK_THAT(emitted(*loss, kShares), Contains(fmt::format("kind={}", kind)));
    CHECK_THROWS_WITH(loss->targets(kLogits, kLabel), Contains("targets are i32"));
    CHECK_THROWS_WITH(loss->targets({Shape{4, 2}, DType::f32}, kShares),
                      Contains(fmt::format(
                          "a sample has 3 targets for the loss {}, the model has 2 outputs; take a "
                          "last layer with 3 (out_features: auto)",
                          kind)));
  }
  CHECK_THAT(emitted(*loss_of("{type: huber, delta: 2}"), kShares), Contains("delta=2"));
  CHECK_THAT(emitted(*loss_of("{type: smooth_l1, beta: 3}"), kShares), Contains("delta=3"));
  CHECK_THAT(emitted(*loss_of("{type: binary_cross_entropy, pos_weight: 2}"), kShares),
             Contains("pos_weight=[2]"));
}

TEST_CASE("kl_divergence counts distributions, or their elements") {
  const auto loss = loss_of("{type: kl_divergence, temperature: 2}");
  CHECK(loss->target_weights(kLogits, kShares).each == 1);
  CHECK(emitted(*loss, kShares) ==
        "affine {scale=0.5, shift=0} weighted_cross_entropy {relative=true, scale=4} ");
  CHECK(loss_of("{type: kl_divergence, reduction: mean}")->target_weights(kLogits, kShares).each ==
        3);
  CHECK_THROWS_WITH(loss->targets(kLogits, kLabel), Contains("targets are i32"));
}

TEST_CASE("keys of losses that cannot be are refused") {
  CHECK_THAT(errors("{type: cross_entropy, class_weights: [1], balanced_class_weights: true}"),
             Contains("keep one"));
  CHECK_THAT(errors("{type: cross_entropy, class_weights: [0, 0]}"), Contains("above 0"));
  CHECK_THAT(errors("{type: huber, delta: 0}"), Contains("error:"));
  CHECK_THAT(errors("{type: smooth_l1, beta: -1}"), Contains("error:"));
  CHECK_THAT(errors("{type: mse, delta: 1}"), Contains("error:"));
  CHECK_THAT(errors("bce"), Contains("error:"));
  CHECK_THROWS_WITH(
      loss_of("{type: cross_entropy, class_weights: [1, 2]}")->targets(kLogits, kLabel),
      Contains("2 class_weights, the model has 3 classes"));
  CHECK_THROWS_WITH(
      loss_of("{type: binary_cross_entropy, pos_weight: [1, 2]}")->targets(kLogits, kShares),
      Contains("2 numbers of pos_weight"));
}

}  // namespace
}  // namespace dltrain

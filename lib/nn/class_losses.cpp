// Losses over classes.
//
// cross_entropy: negative log likelihood of labels, or of distributions over the classes, under
// softmax. The mean is PyTorch's: over the targets that count; with class weights and labels the
// sum is divided by the sum of the weights of the labels, with distributions by their number.
//
// kl_divergence: Σ t·(log t − log softmax(x)) for target distributions t, from the model's logits
// x, as PyTorch's kl_div(log_softmax(x), t). A temperature T divides the logits, and the loss is
// multiplied by T² to keep the size of gradients (Hinton et al. 2015, section 2.1).
#include <algorithm>

#include "base/error.h"
#include "nn/loss.h"

namespace dltrain {
namespace {

void expect_logits(const std::string& loss, const TensorSpec& output) {
  if (output.shape.rank() > 1) return;
  fail(ExitCode::usage, "{} expects one vector of logits a sample, got {}", loss,
       to_string(output.shape));
}

struct CrossEntropy final : Loss {
  double label_smoothing = 0;
  std::vector<double> class_weights;
  bool balanced_class_weights = false;
  int64_t ignore_index = -100;
  double z_loss = 0;

  void describe(Fields& f) override {
    f.number("label_smoothing", label_smoothing,
             {.doc = "Share of the target distribution that is spread evenly over all classes",
              .min = 0,
              .below = 1,
              .known_as = {"smoothing"}});
    f.numbers("class_weights", class_weights,
              {.doc = "A factor for each class; the mean divides by the sum of the weights of the "
                      "labels",
               .min = 0,
               .known_as = {"weight", "weights"}});
    f.boolean("balanced_class_weights", balanced_class_weights,
              {.doc = "Class weights from the training data: samples / (classes that occur · "
                      "samples of the class); 1 for a class that does not occur",
               .known_as = {"balanced", "class_balance"}});
    f.integer("ignore_index", ignore_index,
              {.doc = "A label that does not count, besides −100", .min = -100, .max = 2147483646});
    f.number("z_loss", z_loss,
             {.doc = "Adds this times the square of log Σ exp(logits) for each label, so that "
                     "logits stay small (1e-4 is usual); the reported loss includes it",
              .min = 0});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (balanced_class_weights && !class_weights.empty()) {
      diagnostics.add(*this, "balanced_class_weights",
                      "class_weights and balanced_class_weights are both given; keep one");
    }
    if (!class_weights.empty() &&
        std::all_of(class_weights.begin(), class_weights.end(), [](double w) { return w == 0; })) {
      diagnostics.add(*this, "class_weights", "at least one class needs a weight above 0");
    }
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo& info) const override {
    const std::vector<double> weights = weights_of(c.shape(output)[-1], info);
    std::vector<ValueId> out;
    if (weights.empty() && !is_floating(c.builder().spec(targets).dtype)) {
      Attributes attributes{{"ignore_index", int64_t{-100}}, {"label_smoothing", label_smoothing}};
      if (z_loss != 0) attributes.set("z_loss", z_loss);
      if (info.sources > 0) attributes.set("row_losses", true);
      out = c.builder().emit("softmax_cross_entropy", {output, targets}, attributes);
    } else {
      if (z_loss != 0) {
        fail(ExitCode::usage,
             "z_loss goes neither with class weights nor with mixed samples (mixup, cutmix), whose "
             "targets are distributions");
      }
      out = c.builder().emit("weighted_cross_entropy", {output, targets},
                             {{"class_weights", weights}, {"label_smoothing", label_smoothing}});
    }
    return {out[0], {{"accuracy", out[2]}}, out.size() > 3 ? out[3] : kNoValue};
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    expect_logits(kind, output);
    if (output.shape[-1] == 1 && !info.one_class.empty()) {
      fail(ExitCode::data, "{}; cross_entropy needs at least two classes", info.one_class);
    }
    if (output.shape[-1] == 1) {
      const bool floats =
          info.sample && is_floating(info.sample->dtype) && info.sample->shape.elements() == 1;
      fail(ExitCode::usage,
           "cross_entropy needs at least two logits, and the model has one; use "
           "binary_cross_entropy for yes or no, or mse for a number{}",
           floats ? "; the targets are floats: save labels of classes as integers (csv: task: "
                    "classification)"
                  : "");
    }
    if (!class_weights.empty() && static_cast<int64_t>(class_weights.size()) != output.shape[-1]) {
      fail(ExitCode::usage, "cross_entropy has {} class_weights, the model has {} classes",
           class_weights.size(), output.shape[-1]);
    }
    const TensorSpec labels{
        Shape(output.shape.dims().first(static_cast<size_t>(output.shape.rank() - 1))), DType::i32};
    return expect_target_sample(kind, info,
                                takes_distributions(info) ? like_output(output) : labels);
  }

  TargetWeights target_weights(const TensorSpec& output, const TargetInfo& info) const override {
    if (takes_distributions(info)) return {.group = output.shape[-1]};
    return {.by_label = weights_of(output.shape[-1], info)};
  }
  bool wants_label_counts() const override { return balanced_class_weights; }
  std::optional<int32_t> ignored_label() const override {
    if (ignore_index == -100) return {};
    return static_cast<int32_t>(ignore_index);
  }
  int64_t classes(const TensorSpec& output) const override { return output.shape[-1]; }
  TargetKind target_kind(const TargetInfo& info) const override {
    return takes_distributions(info) ? TargetKind::distributions : TargetKind::labels;
  }

 private:
  static bool takes_distributions(const TargetInfo& info) {
    return info.sample && is_floating(info.sample->dtype);
  }

  // Returns the weights of the classes; empty: all are equal.
  std::vector<double> weights_of(int64_t classes, const TargetInfo& info) const {
    if (!balanced_class_weights) return class_weights;
    if (info.label_counts.empty()) {
      if (!info.sample) return {};
      fail(ExitCode::usage, "balanced_class_weights needs integer labels in the training data");
    }
    double samples = 0, occurring = 0;
    for (int64_t count : info.label_counts) {
      samples += static_cast<double>(count);
      occurring += count > 0 ? 1 : 0;
    }
    std::vector<double> weights(static_cast<size_t>(classes), 1.0);
    for (size_t k = 0; k < std::min(weights.size(), info.label_counts.size()); ++k) {
      const auto count = static_cast<double>(info.label_counts[k]);
      if (count > 0) weights[k] = samples / (occurring * count);
    }
    return weights;
  }
};

enum class KlReduction : uint8_t { batchmean, mean };

struct KlDivergence final : Loss {
  KlReduction reduction = KlReduction::batchmean;
  double temperature = 1;

  void describe(Fields& f) override {
    f.choice("reduction", reduction,
             {{"batchmean", KlReduction::batchmean, "divide by the number of distributions"},
              {"mean", KlReduction::mean, "divide by the number of their elements"}},
             {.doc = "Divisor of the sum"});
    f.number("temperature", temperature,
             {.doc = "The logits are divided by it and the loss is multiplied by its square; the "
                     "targets are unchanged",
              .above = 0});
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo&) const override {
    if (temperature != 1) output = c.scaled(output, 1 / temperature);
    const auto out = c.builder().emit("weighted_cross_entropy", {output, targets},
                                      {{"relative", true}, {"scale", temperature * temperature}});
    return {out[0], {{"accuracy", out[2]}}};
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    expect_logits(kind, output);
    return expect_target_sample(kind, info, like_output(output));
  }

  TargetWeights target_weights(const TensorSpec& output, const TargetInfo&) const override {
    const int64_t classes = output.shape[-1];
    return {.group = classes,
            .each = reduction == KlReduction::mean ? static_cast<double>(classes) : 1.0};
  }
  int64_t classes(const TensorSpec&) const override { return 0; }
  TargetKind target_kind(const TargetInfo&) const override { return TargetKind::distributions; }
};

}  // namespace

std::vector<KindRow<Loss>> class_loss_rows() {
  return {{"cross_entropy", "softmax and negative log likelihood of labels or distributions",
           make_kind_of<CrossEntropy>},
          {"kl_divergence", "Kullback-Leibler divergence of softmax from target distributions",
           make_kind_of<KlDivergence>}};
}

}  // namespace dltrain

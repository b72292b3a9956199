// distillation: a trained model, the teacher, gives the targets beside those of the data (Hinton,
// Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network").
//
//   loss = (1 − α) · hard + α · T² · KL(softmax(teacher / T) ‖ softmax(model / T))
//
// `hard` is a loss of the data's targets. The teacher runs in the same step on the same inputs,
// forward only, as in evaluation (no dropout, running statistics); its weights are constants.
// Evaluation measures the hard loss alone. Both sums have the hard loss's divisor, and a sample
// whose label does not count (−100) counts in neither.
#include "base/error.h"
#include "nn/loss.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

struct Distillation final : Loss {
  std::string teacher_path;
  double temperature = 2, alpha = 0.5;
  std::unique_ptr<Loss> hard = make_kind(loss_table(), "cross_entropy");

  void describe(Fields& f) override {
    f.text("teacher", teacher_path,
           {.doc = "Run folder or checkpoint of the teacher, which has its own configuration",
            .required = true,
            .is_path = true});
    f.number(
        "temperature", temperature,
        {.doc = "Logits of both are divided by it; a higher temperature gives unlikely classes "
                "more weight",
         .above = 0});
    f.number("alpha", alpha,
             {.doc = "Share of the teacher's targets in the loss", .min = 0, .max = 1});
    f.one_of("loss", hard, loss_table(), {.doc = "The loss of the data's targets"});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (hard->teacher() != nullptr) {
      diagnostics.add(*this, "loss",
                      "the loss inside a distillation cannot be another distillation");
    }
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo& info) const override {
    LossOutput out = hard->emit(c, output, targets, info);
    const ValueId teacher = c.teacher_output();
    if (teacher == kNoValue) return out;
    if (!(c.shape(teacher) == c.shape(output))) {
      fail(ExitCode::usage, "the teacher's output is {}, the model's is {}",
           to_string(c.shape(teacher)), to_string(c.shape(output)));
    }
    const ValueId soft_targets = c.builder().emit1("softmax", {divided(c, teacher)});
    std::vector<ValueId> inputs{divided(c, output), soft_targets};
    if (c.builder().spec(targets).dtype == DType::i32) inputs.push_back(targets);
    const ValueId soft =
        c.builder().emit("weighted_cross_entropy", std::move(inputs),
                         {{"relative", true}, {"scale", temperature * temperature}})[0];
    out.loss_sum = mixed(c, out.loss_sum, soft);
    return out;
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    return hard->targets(output, info);
  }
  TargetWeights target_weights(const TensorSpec& output, const TargetInfo& info) const override {
    return hard->target_weights(output, info);
  }
  bool wants_label_counts() const override { return hard->wants_label_counts(); }
  std::optional<int32_t> ignored_label() const override { return hard->ignored_label(); }
  int64_t classes(const TensorSpec& output) const override { return hard->classes(output); }
  TargetKind target_kind(const TargetInfo& info) const override { return hard->target_kind(info); }
  const std::string* teacher() const override { return &teacher_path; }
  void set_teacher(const std::string& checkpoint) override { teacher_path = checkpoint; }

 private:
  ValueId divided(LayerContext& c, ValueId logits) const {
    if (temperature == 1) return logits;
    return c.scaled(logits, 1 / temperature);
  }
  // The weighted sum of two f64 sums; engines compute in the accumulation dtype.
  ValueId mixed(LayerContext& c, ValueId a, ValueId b) const {
    const std::string dtype(dtype_name(accumulation_dtype(c.compute())));
    const auto weighted = [&](ValueId sum, double weight) {
      return c.scaled(c.builder().emit1("cast", {sum}, {{"dtype", dtype}}), weight);
    };
    const ValueId sum = c.builder().emit1("add", {weighted(a, 1 - alpha), weighted(b, alpha)});
    return c.builder().emit1("cast", {sum}, {{"dtype", std::string(dtype_name(DType::f64))}});
  }
};

}  // namespace

std::vector<KindRow<Loss>> distillation_rows() {
  return {{"distillation", "a trained model's outputs and the targets of the data",
           make_kind_of<Distillation>}};
}

}  // namespace dltrain

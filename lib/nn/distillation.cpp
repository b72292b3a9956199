// distillation: trained models, the teachers, give the targets beside those of the data (Hinton,
// Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network").
//
//   loss = (1 − α) · hard + α · T² · KL(p ‖ softmax(model / T)),  p = Σ wₖ · softmax(teacherₖ / T)
//
// The soft targets of several teachers are the mean of their distributions (section 5 of the
// paper), with weights that are divided by their sum. `hard` is a loss of the data's targets.
// Teachers run in the same step on the same inputs, forward only, as in evaluation (no dropout,
// running statistics); their weights are constants. Evaluation measures the hard loss alone. Both
// sums have the hard loss's divisor, and a sample whose label does not count (−100) counts in
// neither.
#include <numeric>

#include "base/error.h"
#include "nn/loss.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

struct Distillation final : Loss {
  std::vector<std::string> teacher_paths;
  std::optional<std::vector<double>> teacher_weights;
  double temperature = 2, alpha = 0.5;
  std::unique_ptr<Loss> hard = make_kind(loss_table(), "cross_entropy");

  void describe(Fields& f) override {
    f.texts("teacher", teacher_paths,
            {.doc = "Run folder or checkpoint of the teacher, which has its own configuration; a "
                    "list of several: the mean of their distributions is the target",
             .required = true,
             .min_size = 1,
             .max_size = 64,
             .scalar_ok = true,
             .is_path = true,
             .known_as = {"teachers"}});
    f.numbers("teacher_weights", teacher_weights,
              {.doc = "A weight for each of several teachers, in the same order; absent: equal",
               .above = 0});
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
    if (teacher_weights && teacher_weights->size() != teacher_paths.size()) {
      diagnostics.add(*this, "teacher_weights", "{} for {}: give one for each teacher",
                      count_text(teacher_weights->size(), "weight"),
                      count_text(teacher_paths.size(), "teacher"));
    }
    if (!hard->teachers().empty()) {
      diagnostics.add(*this, "loss",
                      "the loss inside a distillation cannot be another distillation");
    }
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo& info) const override {
    LossOutput out = hard->emit(c, output, targets, info);
    const std::vector<ValueId>& teachers = c.teacher_outputs();
    if (teachers.empty()) return out;
    for (size_t i = 0; i < teachers.size(); ++i) {
      if (c.shape(teachers[i]) == c.shape(output)) continue;
      fail(ExitCode::usage, "the teacher's output is {}, the model's is {} ({})",
           to_string(c.shape(teachers[i])), to_string(c.shape(output)), teacher_paths[i]);
    }
    std::vector<ValueId> inputs{divided(c, output), soft_targets(c, teachers)};
    if (c.builder().spec(targets).dtype == DType::i32) inputs.push_back(targets);
    const ValueId soft =
        c.builder().emit("weighted_cross_entropy", std::move(inputs),
                         {{"relative", true}, {"scale", temperature * temperature}})[0];
    out.loss_sum = mixed(c, out.loss_sum, soft);
    out.row_losses = kNoValue;  // they lack the teachers' part
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
  std::vector<std::string> teachers() const override { return teacher_paths; }
  void set_teachers(const std::vector<std::string>& checkpoints) override {
    teacher_paths = checkpoints;
  }

 private:
  static std::string count_text(size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  }
  ValueId soft_targets(LayerContext& c, const std::vector<ValueId>& teachers) const {
    const auto distribution = [&](size_t i) {
      return c.builder().emit1("softmax", {divided(c, teachers[i])});
    };
    if (teachers.size() == 1) return distribution(0);
    const std::vector<double> weights =
        teacher_weights.value_or(std::vector<double>(teachers.size(), 1));
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    ValueId mean = kNoValue;
    for (size_t i = 0; i < teachers.size(); ++i) {
      const ValueId part = c.scaled(distribution(i), weights[i] / all);
      mean = i == 0 ? part : c.builder().emit1("add", {mean, part});
    }
    return mean;
  }
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

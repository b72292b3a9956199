#include "nn/loss.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ops/rules.h"

namespace dltrain {

TensorSpec like_output(const TensorSpec& output) {
  return {output.shape, accumulation_dtype(output.dtype)};
}

namespace {

// Returns whether elements with equal numbers in row-major order have the same meaning: one shape
// joins or splits axes of the other.
bool same_order(std::span<const int64_t> a, std::span<const int64_t> b) {
  const auto ends = [](std::span<const int64_t> shape) {
    std::set<int64_t> out;
    int64_t elements = 1;
    for (const int64_t extent : shape) out.insert(elements *= extent);
    out.insert(1);
    return out;
  };
  const std::set<int64_t> x = ends(a), y = ends(b);
  return std::ranges::includes(x, y) || std::ranges::includes(y, x);
}

}  // namespace

TensorSpec expect_target_sample(const std::string& loss, const TargetInfo& info,
                                const TensorSpec& wanted) {
  if (!info.sample) return wanted;
  // f64 graphs take f32 targets.
  const bool same_kind = is_floating(info.sample->dtype) == is_floating(wanted.dtype);
  if (!same_kind) {
    fail(ExitCode::data, "targets are {}, the loss {} expects {}{}", dtype_name(info.sample->dtype),
         loss, is_floating(wanted.dtype) ? "f32" : "i32",
         is_floating(wanted.dtype) ? " (csv: task: regression; tensors: a floating type)" : "");
  }
  const bool labels = !is_floating(wanted.dtype);
  const int64_t elements = wanted.shape.elements() / wanted.shape[0];
  const int64_t targets = info.sample->shape.elements();
  const int64_t each = labels ? 1 : wanted.shape[-1];  // targets of a step
  if (targets == elements) {
    const auto outputs = wanted.shape.dims().subspan(1);
    if (same_order(info.sample->shape.dims(), outputs)) return wanted;
    fail(
        ExitCode::data,
        "the targets of a sample have shape {}, but the outputs {}: end the model with a transpose "
        "that puts its axes in the order of the targets",
        to_string(info.sample->shape), to_string(Shape(outputs)));
  }
  if (!labels && loss == "cross_entropy" && targets * each == elements) {
    fail(ExitCode::data,
         "the targets are {}, which cross_entropy takes as a probability of each class; class "
         "numbers must be integers (i32)",
         dtype_name(info.sample->dtype));
  }
  const auto count = [](int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  if (targets == each) {
    fail(
        ExitCode::data,
        "a sample has {}, but the model has {} for each of {} steps; a recurrent layer needs "
        "return_sequences: false, another model a layer that joins the steps (flatten){}",
        labels ? "one label" : count(targets, "target"), labels ? "outputs" : count(each, "output"),
        elements / each,
        labels ? "; classes of texts need model.type: bert_classifier (also with model.from)" : "");
  }
  if (labels) {
    fail(ExitCode::data,
         "integer targets of shape {} are {} class numbers, and the model has outputs for {}; "
         "one-hot targets must be floats",
         to_string(info.sample->shape), targets, elements);
  }
  fail(ExitCode::data,
       "a sample has {} for the loss {}, the model has {}; take a last layer with {} "
       "(out_features: auto)",
       count(targets, "target"), loss, count(elements, "output"), targets);
}

TargetInfo mixed_targets(const Loss& loss, const TensorSpec& output, TargetInfo info) {
  if (!info.mixed) return info;
  const int64_t classes = loss.classes(output);
  if (classes < 1) {
    fail(ExitCode::usage, "mixup and cutmix need a loss over classes; {} has none", loss.kind);
  }
  info.sample = {Shape{classes}, DType::f32};
  return info;
}

std::vector<std::vector<KindRow<Loss>>> loss_rows();  // of all files of this folder (generated)

KindTable<Loss>& loss_table() {
  static auto table = joined_table<Loss>("loss", loss_rows());
  return table;
}

}  // namespace dltrain

#include "nn/loss.h"

#include "base/error.h"
#include "ops/rules.h"

namespace dltrain {

TensorSpec like_output(const TensorSpec& output) {
  return {output.shape, accumulation_dtype(output.dtype)};
}

void expect_target_sample(const std::string& loss, const TargetInfo& info,
                          const TensorSpec& wanted) {
  if (!info.sample) return;
  // f64 graphs take f32 targets.
  const bool same_kind = is_floating(info.sample->dtype) == is_floating(wanted.dtype);
  if (!same_kind) {
    fail(ExitCode::data, "targets are {}, the loss {} expects {}{}", dtype_name(info.sample->dtype),
         loss, is_floating(wanted.dtype) ? "f32" : "i32",
         is_floating(wanted.dtype) ? " (csv: task: regression; tensors: a floating type)" : "");
  }
  const int64_t elements = wanted.shape.elements() / wanted.shape[0];
  if (info.sample->shape.elements() != elements) {
    const int64_t targets = info.sample->shape.elements();
    if (targets == 1 && wanted.shape.rank() == 2 && !is_floating(wanted.dtype)) {
      fail(ExitCode::data,
           "a sample has one label, but the model has outputs for each of {} tokens; classes of "
           "texts need model.type: bert_classifier (also with model.from), or a layer that joins "
           "the tokens (flatten)",
           elements);
    }
    fail(ExitCode::data,
         "a sample has {} target{} for the loss {}, the model has {} output{}; take a last layer "
         "with {} (out_features: auto)",
         targets, targets == 1 ? "" : "s", loss, elements, elements == 1 ? "" : "s", targets);
  }
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

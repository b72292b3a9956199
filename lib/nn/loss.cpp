#include "nn/loss.h"

#include "base/error.h"

namespace dltrain {

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
    fail(ExitCode::data, "a sample has {} targets, the model gives {} outputs to judge",
         info.sample->shape.elements(), elements);
  }
}

}  // namespace dltrain

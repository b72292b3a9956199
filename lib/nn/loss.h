// A loss: emits a sum over the micro-batch's targets and further sums that the host turns into
// metrics. The mean comes from elsewhere: the backward starts from 1 / divisor, where the divisor
// is that of the whole global batch, added up by the loader ahead of the step as target_weights()
// says. So ignored targets, class weights, accumulation and ranks need no further correction.
//
// Targets that do not count (padding, ignored ones): −100 among i32 targets, NaN among f32 ones.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "tensor/target_weights.h"

namespace dltrain {

// What a loss knows of the targets it will get.
struct TargetInfo {
  // Of one sample, as the dataset holds them: i32 labels, or f32 numbers. Absent: what the loss is
  // usually given.
  std::optional<TensorSpec> sample = {};
  // How often each label occurs in the training data; filled where wants_label_counts().
  std::vector<int64_t> label_counts = {};
  // Training mixes samples (mixup, cutmix): see mixed_targets().
  bool mixed = false;
};

// What targets are, for those who measure a model.
enum class TargetKind : uint8_t {
  labels,         // i32, one of the classes
  distributions,  // over the classes
  binary,         // for each output no or yes, from 0 to 1
  numbers,        // for each output
};

struct LossOutput {
  ValueId loss_sum;  // f64 [1]
  // Sums over the micro-batch, f64 [1], divided by the count of valid targets when reported:
  // {"accuracy", correct}.
  std::vector<std::pair<std::string, ValueId>> metrics;
};

struct Loss : Chosen {
  virtual ~Loss() = default;
  virtual void describe(Fields&) {}
  // Throws Error(usage) when output and targets do not fit.
  virtual LossOutput emit(LayerContext& context, ValueId output, ValueId targets,
                          const TargetInfo& info) const = 0;
  // Shape and dtype of the targets of a micro-batch, given the model's output for it. Throws
  // Error(usage) where the output cannot be judged, Error(data) where info.sample does not fit it.
  virtual TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const = 0;
  virtual TargetWeights target_weights(const TensorSpec&, const TargetInfo&) const { return {}; }
  virtual bool wants_label_counts() const { return false; }
  // A label that does not count, besides −100.
  virtual std::optional<int32_t> ignored_label() const { return {}; }
  // Run folder or checkpoint of a model whose output for each micro-batch the loss wants
  // (LayerContext::teacher_output); nullptr: none.
  virtual const std::string* teacher() const { return nullptr; }
  virtual void set_teacher(const std::string& /*checkpoint*/) {}
  // Classes that integer targets tell apart, from the model's output; 0 for losses without classes.
  virtual int64_t classes(const TensorSpec& output) const = 0;
  virtual TargetKind target_kind(const TargetInfo& info) const = 0;
};

// The spec of f32 targets that have the output's shape (f64 where the output has).
TensorSpec like_output(const TensorSpec& output);

// Throws Error(data) unless the targets of a sample have the dtype and the number of elements that
// `wanted` (of a micro-batch) has. `loss`: its name, for the message.
void expect_target_sample(const std::string& loss, const TargetInfo& info,
                          const TensorSpec& wanted);

// The targets as the loader gives them where samples are mixed: for each a distribution, f32
// [classes]. Throws Error(usage) for a loss without classes.
TargetInfo mixed_targets(const Loss& loss, const TensorSpec& output, TargetInfo info);

const KindTable<Loss>& loss_table();

}  // namespace dltrain

// A loss emits a sum over the micro-batch's targets, and further sums from which the host computes
// metrics. The backward pass starts from 1 / divisor of the global batch, which the loader computes
// before the step with target_weights(). So ignored targets, class weights, accumulation and ranks
// need no further correction.
//
// Targets that do not count (padding, ignored ones) are −100 (i32) or NaN (f32).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "tensor/target_weights.h"

namespace dltrain {

// Properties of the targets for a loss.
struct TargetInfo {
  // The targets of one sample in the dataset: i32 labels or f32 numbers. Absent: the usual targets
  // of the loss.
  std::optional<TensorSpec> sample = {};
  // The count of each label in the training data; filled if wants_label_counts().
  std::vector<int64_t> label_counts = {};
  // Training mixes samples (mixup, cutmix): see mixed_targets().
  bool mixed = false;
  int64_t sources = 0;  // of training data, each of which gets a loss (LossOutput::row_losses)
  // Describes data with one class only; otherwise empty.
  std::string one_class = {};
};

// The kind of targets for metrics.
enum class TargetKind : uint8_t {
  labels,         // i32, one of the classes
  distributions,  // over the classes
  binary,         // a probability for each output, from 0 to 1
  numbers,        // for each output
};

struct LossOutput {
  ValueId loss_sum;  // f64 [1]
  // Sums over the micro-batch, f64 [1], such as {"accuracy", correct}. Reports divide them by the
  // count of valid targets.
  std::vector<std::pair<std::string, ValueId>> metrics;
  // The terms of loss_sum, f64 of the shape of the targets; kNoValue: TargetInfo::sources is 0, or
  // the loss does not have them.
  ValueId row_losses = kNoValue;
};

struct Loss : ConfigVariant {
  void describe(Fields&) override {}
  // Throws Error(usage) when output and targets do not fit.
  virtual LossOutput emit(LayerContext& context, ValueId output, ValueId targets,
                          const TargetInfo& info) const = 0;
  // Shape and dtype of the targets of a micro-batch for the model's output. Throws Error(usage) if
  // the loss cannot take such outputs, Error(data) if info.sample does not fit them.
  virtual TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const = 0;
  virtual TargetWeights target_weights(const TensorSpec&, const TargetInfo&) const { return {}; }
  virtual bool wants_label_counts() const { return false; }
  // Returns a label that does not count, in addition to −100.
  virtual std::optional<int32_t> ignored_label() const { return {}; }
  // Run folders or checkpoints of the teachers, whose outputs for each micro-batch the loss needs
  // (LayerContext::teacher_outputs).
  virtual std::vector<std::string> teachers() const { return {}; }
  virtual void set_teachers(const std::vector<std::string>& /*checkpoints*/) {}
  // The number of classes of integer targets, from the model's output; 0 for losses without
  // classes.
  virtual int64_t classes(const TensorSpec& output) const = 0;
  virtual TargetKind target_kind(const TargetInfo& info) const = 0;
};

// Returns the spec of f32 targets with the output's shape (f64 for f64 outputs).
TensorSpec like_output(const TensorSpec& output);

// Returns `wanted`, the spec of the targets of a micro-batch. Throws Error(data) unless the targets
// of a sample have its dtype and number of elements. `loss`: its name, for the message.
TensorSpec expect_target_sample(const std::string& loss, const TargetInfo& info,
                                const TensorSpec& wanted);

// The targets of mixed samples, as the loader provides them: a distribution for each, f32
// [classes]. Throws Error(usage) for a loss without classes.
TargetInfo mixed_targets(const Loss& loss, const TensorSpec& output, TargetInfo info);

KindTable<Loss>& loss_table();

}  // namespace dltrain

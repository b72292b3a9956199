// A loss: emits a sum over the micro-batch's targets (the mean over the global batch comes from the
// seed of the backward) and further sums that the host turns into metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/layer.h"

namespace dltrain {

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
  virtual LossOutput emit(LayerContext& context, ValueId output, ValueId targets) const = 0;
  // Shape and dtype of the targets of `samples` samples, given the model's output.
  virtual TensorSpec targets(const TensorSpec& output) const = 0;
  // Classes that the model tells apart, from its output; 0 for losses without classes.
  virtual int64_t classes(const TensorSpec& output) const = 0;
};

const KindTable<Loss>& loss_table();

}  // namespace dltrain

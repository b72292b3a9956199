// Groups of parameters by name: which learn at another rate, decay otherwise, or do not learn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "tensor/shape.h"

namespace dltrain {

// One of `optimizer.groups`. Keys that are not given stay as the groups before it, or the optimizer
// itself, have them.
struct ParameterGroup : Located {
  std::vector<std::string> match;  // config/name_patterns.h
  std::optional<double> learning_rate, lr_scale, weight_decay;
  std::optional<bool> freeze;

  void describe(Fields& f);
  void validate(Problems& problems) const;
};

// Which parameters `optimizer.weight_decay` is for.
enum class WeightDecayOn : uint8_t {
  all,       // as torch.optim's optimizers
  matrices,  // two axes and more: neither biases nor the scales of normalisation (Hugging Face,
             // timm)
};

// What one parameter gets.
struct ParameterSettings {
  double lr_scale = 1, weight_decay = 0;
  bool frozen = false;
};

}  // namespace dltrain

// An optimizer: its keys and the update that it emits for each parameter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"
#include "graph/reverse.h"

namespace dltrain {

enum class MomentFormat : uint8_t {
  f32,       // as the gradients
  eight_bit  // codes of 8 bits with a scale a block (ops/update.cpp)
};

// One of `optimizer.groups`. For keys that are not given, earlier groups or the optimizer apply.
struct ParameterGroup : ConfigObject {
  std::vector<std::string> match;  // config/name_patterns.h
  std::optional<double> learning_rate, lr_scale, weight_decay;
  std::optional<bool> freeze;
  std::optional<MomentFormat> moments;

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

enum class BatchRule : uint8_t { linear, sqrt };

// Learning rates are those for this batch, and grow with the global batch: in proportion (Goyal and
// others 2017, for SGD) or with its root, as the noise of Adam's steps asks for (Malladi and others
// 2022).
struct LearningRateScale : ConfigObject {
  BatchRule rule = BatchRule::linear;
  int64_t base_batch = 0;
  void describe(Fields& f);
  double factor(int64_t global_batch) const;
};

// The parameters to which `optimizer.weight_decay` applies.
enum class WeightDecayOn : uint8_t {
  all,       // as torch.optim's optimizers
  matrices,  // two axes and more: neither biases nor the scales of normalisation (Hugging Face,
             // timm)
};

// The settings of one parameter.
struct ParameterSettings {
  double lr_scale = 1, weight_decay = 0;
  bool frozen = false;
  bool eight_bit = false;  // moments
};

// A kind of optimizer state: one tensor for each parameter, named "<name> of <parameter>", zero
// at first.
struct MomentSpec {
  std::string name;
  Shape shape;
};

struct Galore;

struct Optimizer : ConfigVariant {
  double learning_rate = 0;
  double weight_decay = 0;
  WeightDecayOn weight_decay_on = WeightDecayOn::all;
  MomentFormat moment_format = MomentFormat::f32;
  int64_t min_8bit_size = 4096;  // elements; smaller parameters have f32 moments, as bitsandbytes'
  std::vector<ParameterGroup> groups;
  std::optional<LearningRateScale> scale_learning_rate;

  void describe(Fields& f) override;

  // The update op and its own attributes (lib/ops/update.cpp).
  virtual std::string op() const = 0;
  virtual Attributes attributes() const = 0;
  // Returns the moments of a parameter of this shape. Their number is the same for every shape; a
  // moment that a shape does not have has no name.
  virtual std::vector<MomentSpec> moments(const Shape& parameter) const = 0;

  // Returns how gradients of matrices are projected (optim/galore.h); null: they are not.
  virtual const Galore* projection() const { return nullptr; }

  // Returns whether its op can have moments in 8 bits, and whether any parameter may have.
  virtual bool supports_8bit() const { return false; }
  bool wants_8bit() const;

  // Emits the update of each parameter: by default a node of op().
  struct UpdateNode {
    std::vector<ValueId> inputs;  // step state, parameter, gradient, moments
    Attributes attributes;
  };
  virtual void emit_nodes(GraphBuilder& builder, std::vector<UpdateNode>& nodes) const;

  // Changes the learning rate, and those of groups by the same factor. The rate must not be 0 if a
  // group has its own.
  void set_learning_rate(double rate);

  // The peak learning rate for this global batch; those of groups are multiples of it.
  double peak_learning_rate(int64_t global_batch) const {
    return learning_rate * (scale_learning_rate ? scale_learning_rate->factor(global_batch) : 1.0);
  }

  // Returns whether parameters without decay are updated without the trust ratio of lars and lamb.
  virtual bool adapts_decayed_only() const { return false; }

  // Returns the settings of one parameter. For each key, later groups take precedence.
  ParameterSettings settings(std::string_view parameter, const Shape& shape) const;
  // Reports groups that match none of the model's parameters.
  void check_groups(Diagnostics& diagnostics, const std::vector<std::string>& parameters) const;

  // Emits moments and an update op for each parameter. `state` is the StepState after
  // gradient_norm; gradients are complete sums.
  void emit(GraphBuilder& builder, ValueId state,
            const std::vector<ParameterGradient>& gradients) const;
};

const KindTable<Optimizer>& optimizer_table();

}  // namespace dltrain

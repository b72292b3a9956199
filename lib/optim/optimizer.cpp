#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "config/name_patterns.h"
#include "ops/update.h"
#include "optim/galore.h"

namespace dltrain {
namespace {

template <typename Format>
void describe_moments(Fields& f, Format& format, std::string doc) {
  f.choice("moments", format,
           {{"f32", MomentFormat::f32, "4 bytes each"},
            {"8bit", MomentFormat::eight_bit,
             "1 byte each, and a scale for 256 (Dettmers et al. 2022, as bitsandbytes)"}},
           {.doc = std::move(doc), .known_as = {"state", "bits", "optim_bits", "moment_dtype"}});
}

}  // namespace

void ParameterGroup::describe(Fields& f) {
  f.texts("match", match,
          {.doc = "Patterns of parameter names, such as layers.0.*; patterns after ! exclude names",
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"params", "pattern", "patterns", "parameters"}});
  f.number("learning_rate", learning_rate,
           {.doc = "Peak learning rate of these parameters; the schedule scales it too",
            .min = 0,
            .known_as = {"lr"}});
  f.number("lr_scale", lr_scale,
           {.doc = "Learning rate of these parameters as a multiple of the optimizer's",
            .min = 0,
            .known_as = {"lr_mult", "lr_multiplier"}});
  f.number("weight_decay", weight_decay,
           {.doc = "Decay of these parameters", .min = 0, .known_as = {"wd"}});
  f.boolean("freeze", freeze, {.doc = "Do not train them, as with training.freeze"});
  describe_moments(f, moments, "Format of the moments of these parameters");
}

void ParameterGroup::validate(Diagnostics& diagnostics) const {
  if (learning_rate && lr_scale) {
    diagnostics.add(*this, "lr_scale", "learning_rate and lr_scale are both given; keep one");
  }
}

void LearningRateScale::describe(Fields& f) {
  f.choice("rule", rule,
           {{"linear", BatchRule::linear, "× global batch / base_batch (for SGD)"},
            {"sqrt", BatchRule::sqrt, "× √(global batch / base_batch) (for Adam and its kin)"}},
           {.doc = "How learning rates depend on the batch", .required = true});
  f.integer("base_batch", base_batch,
            {.doc = "The batch for which learning rates are given",
             .required = true,
             .min = 1,
             .max = 1e9,
             .known_as = {"base_batch_size", "lr_base_size"}});
}

double LearningRateScale::factor(int64_t global_batch) const {
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  return rule == BatchRule::linear ? ratio : std::sqrt(ratio);
}

void Optimizer::describe(Fields& f) {
  f.number("learning_rate", learning_rate,
           {.doc = "Peak learning rate; the schedule scales it",
            .required = true,
            .min = 0,
            .known_as = {"lr", "base_lr", "max_lr"}});
  f.number(
      "weight_decay", weight_decay,
      {.doc = "Decay of parameters: decoupled in adamw, lion, lamb and adafactor, added to the "
              "gradient in the others",
       .min = 0,
       .known_as = {"wd", "l2"}});
  f.choice("weight_decay_on", weight_decay_on,
           {{"all", WeightDecayOn::all, "every parameter, as PyTorch's optimizers do"},
            {"matrices", WeightDecayOn::matrices,
             "parameters of two axes and more: neither biases nor the scales of normalisation"}},
           {.doc = "Parameters to which weight_decay applies; groups can override it",
            .known_as = {"no_decay", "no_weight_decay"}});
  describe_moments(f, moment_format,
                   "Format of the moments, of adam, adamw, lion and sgd; groups can override it");
  f.integer("min_8bit_size", min_8bit_size,
            {.doc = "With moments: 8bit, parameters of fewer elements have f32 moments",
             .min = 1,
             .max = 1e12});
  f.list("groups", groups,
         {.doc = "Parameters with their own settings; if several groups match, later keys take "
                 "precedence",
          .known_as = {"param_groups", "parameter_groups"}});
  f.section("scale_learning_rate", scale_learning_rate,
            {.doc = "Multiply learning rates by a function of training.global_batch_size",
             .known_as = {"scale_lr", "lr_base"}});
}

void Optimizer::set_learning_rate(double rate) {
  for (ParameterGroup& group : groups) {
    if (group.learning_rate) *group.learning_rate *= rate / learning_rate;
  }
  learning_rate = rate;
}

ParameterSettings Optimizer::settings(std::string_view parameter, const Shape& shape) const {
  const bool decays = weight_decay_on == WeightDecayOn::all || shape.rank() > 1;
  ParameterSettings out{.weight_decay = decays ? weight_decay : 0};
  MomentFormat format = moment_format;
  for (const ParameterGroup& group : groups) {
    if (!selects(group.match, parameter)) continue;
    if (group.learning_rate) out.lr_scale = *group.learning_rate / learning_rate;
    if (group.lr_scale) out.lr_scale = *group.lr_scale;
    if (group.weight_decay) out.weight_decay = *group.weight_decay;
    if (group.freeze) out.frozen = *group.freeze;
    if (group.moments) format = *group.moments;
  }
  out.eight_bit = format == MomentFormat::eight_bit && shape.elements() >= min_8bit_size;
  return out;
}

bool Optimizer::wants_8bit() const {
  return moment_format == MomentFormat::eight_bit ||
         std::ranges::any_of(groups, [](const ParameterGroup& group) {
           return group.moments == MomentFormat::eight_bit;
         });
}

void Optimizer::check_groups(Diagnostics& diagnostics,
                             const std::vector<std::string>& parameters) const {
  if (const Galore* galore = projection()) {
    check_patterns(diagnostics, *galore, "match", galore->match, parameters, "parameter");
  }
  for (const ParameterGroup& group : groups) {
    check_patterns(diagnostics, group, "match", group.match, parameters, "parameter");
    if (group.learning_rate && learning_rate == 0) {
      diagnostics.add(
          group, "learning_rate",
          "a group's learning_rate is kept as a multiple of the optimizer's, which is 0");
    }
  }
}

void Optimizer::emit(GraphBuilder& builder, ValueId state,
                     const std::vector<ParameterGradient>& gradients) const {
  const Galore* galore = projection();
  std::vector<std::vector<ValueId>> inputs;
  std::vector<ParameterSettings> own;
  std::vector<Shape> shapes;  // of what has the moments: parameters, or projected gradients
  std::vector<bool> projected;
  for (const auto& [parameter, gradient] : gradients) {
    inputs.push_back({state, parameter, gradient});
    const GraphValue& p = builder.graph().value(parameter);
    projected.push_back(galore != nullptr && galore->projects(p.name, p.spec.shape));
    shapes.push_back(projected.back() ? galore->projected(p.spec.shape) : p.spec.shape);
    own.push_back(settings(p.name, shapes.back()));
  }
  if (galore != nullptr && std::ranges::find(projected, true) == projected.end()) {
    fail_at(*this, "galore",
            "galore projects no matrix: none that match selects has a shorter side above the rank "
            "{}",
            galore->rank);
  }
  // Moments of one kind are adjacent in memory.
  const size_t kinds = moments(Shape{1}).size();
  for (size_t kind = 0; kind < 2 * kinds; ++kind) {
    const bool scales = kind >= kinds;
    for (size_t i = 0; i < inputs.size(); ++i) {
      MomentSpec moment = moments(shapes[i])[kind % kinds];
      const std::optional<Shard>& shard = builder.graph().value(inputs[i][1]).shard;
      // Moments of rows and columns are those of whole tensors on every rank.
      if (shard && !(moment.shape == shapes[i])) moment = moments(shard->whole.shape)[kind % kinds];
      TensorSpec spec{moment.shape, builder.spec(inputs[i][1]).dtype};
      if (scales && !own[i].eight_bit) continue;
      if (scales) spec.shape = Shape{moment_blocks(moment.shape.elements())};
      if (own[i].eight_bit && !scales) spec.dtype = DType::u8;
      // These moments have names of their own, because all state of a kind has one dtype.
      if (own[i].eight_bit) moment.name += scales ? "_scale" : "_8bit";
      inputs[i].push_back(moment.name.empty() ? kNoValue
                                              : builder.add_state_of(inputs[i][1], moment.name,
                                                                     spec, Role::moment));
    }
  }
  std::vector<UpdateNode> nodes;
  std::optional<GaloreUpdates> matrices;
  if (galore != nullptr) matrices.emplace(*galore, builder, state);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Attributes op_attributes = attributes();
    op_attributes.set("lr_scale", std::vector<double>{own[i].lr_scale});
    op_attributes.set("weight_decay", std::vector<double>{own[i].weight_decay});
    if (own[i].eight_bit) op_attributes.set("block", kMomentBlock);
    if (projected[i]) matrices->project(inputs[i], op_attributes);
    nodes.push_back({std::move(inputs[i]), std::move(op_attributes)});
  }
  emit_nodes(builder, nodes);
  if (matrices) matrices->apply();
}

void Optimizer::emit_nodes(GraphBuilder& builder, std::vector<UpdateNode>& nodes) const {
  for (UpdateNode& node : nodes) builder.emit(op(), node.inputs, node.attributes);
}

// Returns the rows of all files of this folder (generated).
std::vector<std::vector<KindRow<Optimizer>>> optimizer_rows();

const KindTable<Optimizer>& optimizer_table() {
  static const auto table = joined_table<Optimizer>("optimizer", optimizer_rows());
  return table;
}

}  // namespace dltrain

// Emits parameters and carried state of layers: names, sharing, initial values. See LayerContext in
// nn/layer.h.
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "config/suggest.h"
#include "nn/emission.h"
#include "ops/rules.h"

namespace dltrain {

// Returns the name of a parameter `full` after every enclosing `share` and copy is applied, from
// the innermost to the outermost.
std::string LayerContext::shared_name(const std::string& full) const {
  std::string name = full;
  const auto replace = [&](const std::string& path, const std::string& by) {
    if (name.starts_with(path + ".")) name = by + name.substr(path.size());
  };
  auto copy = copies_.rbegin();
  for (const Emission* e = emission_; e != nullptr; e = e->outer) {
    for (; copy != copies_.rend() && copy->first.size() > e->path.size(); ++copy) {
      replace(copy->first, copy->second);
    }
    if (e->layer.share) replace(e->path, e->shared);
  }
  return name;
}

// Returns the initialiser of the innermost layer that has one, else of the model, else `own`, the
// layer's default.
Initializer LayerContext::initializer_of(const std::string& name, const Initializer& own,
                                         const FileLayout& layout) {
  const Shape& file = layout.shape;
  const bool weight = name.find("weight") != std::string::npos;
  const bool bias = name.find("bias") != std::string::npos;
  if (bias && emission_ != nullptr && emission_->layer.bias_init) {
    emission_->used_bias_init = true;
    return emission_->layer.bias_init->resolve(file).value_or(own);
  }
  if (!weight) return own;
  const InitializerConfig* found = nullptr;
  for (const Emission* e = emission_; e != nullptr && found == nullptr; e = e->outer) {
    if (!e->layer.weight_init || (e != emission_ && file.rank() < 2)) continue;
    e->used_weight_init = true;
    found = e->layer.weight_init.get();
  }
  if (found == nullptr && file.rank() >= 2) found = default_init_;
  if (found == nullptr) return own;
  // Fans refer to [out, in], the rows of an orthogonal matrix to the file.
  const Shape fans = layout.in_first  ? Shape{file[1], file[0]}
                     : layout.stacked ? Shape{file[1], file[2]}
                                      : file;
  Initializer init = found->resolve(fans).value_or(own);
  if (init.kind == Initializer::orthogonal && layout.stacked) {
    fail(ExitCode::usage, "{} has a matrix for each expert; orthogonal is for one matrix", name);
  }
  if (init.kind == Initializer::orthogonal) init.rows = file[0];
  init.zeros_at = own.zeros_at;
  return init;
}

// Returns kNoValue if the other layer has no such parameter and this one may have its own.
ValueId LayerContext::find_shared(const ParameterInfo& wanted, bool own_bias) {
  if (wanted.role != Role::parameter) {
    fail(ExitCode::usage, "running statistics cannot be shared");
  }
  const auto at = index_.find(wanted.name);
  if (at == index_.end() && own_bias) return kNoValue;
  if (at == index_.end()) {
    fail(ExitCode::usage, "the layer that it shares with has no {}", wanted.name);
  }
  ParameterInfo& there = parameters_[at->second];
  if (!(there.spec == wanted.spec) || !(there.file.shape == wanted.file.shape) ||
      there.file.permutation != wanted.file.permutation) {
    fail(ExitCode::usage, "{} is {}, this layer needs {}", there.name, to_string(there.file.shape),
         to_string(wanted.file.shape));
  }
  there.shared = true;
  for (const Emission* e = emission_; e != nullptr; e = e->outer) e->found_shared = true;
  return builder_.graph().find(wanted.name);
}

int64_t LayerContext::vocabulary() {
  if (vocabulary_ <= 0) {
    fail(ExitCode::usage,
         "the data has no ids to determine the size of the vocabulary; set model.vocab_size");
  }
  asked_vocabulary_ = true;
  return vocabulary_;
}

int64_t LayerContext::outputs() const {
  if (outputs_ > 0) return outputs_;
  fail(ExitCode::usage, "the data does not determine the number of outputs for `auto`; set it");
}

// Evaluation has separate state, because it may run between two steps of training.
ValueId LayerContext::carried(const std::string& name, int64_t samples, int64_t width) {
  if (!constant_.empty()) fail(ExitCode::usage, "a teacher cannot carry state between batches");
  if (streams_.rows == 0) {
    fail(ExitCode::usage,
         "carry_state needs batches that continue the previous ones: data of type text, tokens or "
         "jsonl with `sampling: streams`");
  }
  const std::string full = join_path(path(), name);
  const ValueId state = builder_.add_value(training_ ? full : state_name("evaluation", full),
                                           {{streams_.rows, width}, accumulation_dtype(compute_)},
                                           training_ ? Role::carried : Role::pass);
  carried_.emplace(full, state);
  return builder_.emit1("carried_state", {builder_.step_state(), state},
                        {{"samples", samples}, {"steps", streams_.steps}});
}

// In training the state is replaced at the end of the global batch, and only by a finite step.
void LayerContext::carry(const std::string& name, ValueId x) {
  const std::string full = join_path(path(), name);
  const ValueId state = carried_.at(full);
  if (!training_) {
    builder_.emit("carry_state_in_place", {builder_.step_state(), x, state});
    return;
  }
  const ValueId rows =
      builder_.emit1("carry_state", {builder_.step_state(), x}, {{"rows", streams_.rows}});
  const ValueId next = builder_.accumulate(rows, state_name("next", full), Role::statistic);
  defer_update("carried_update", {state, next}, {});
}

ValueId LayerContext::with_dropout(ValueId x, double rate, std::string_view name,
                                   std::string_view op) {
  if (!noise() || rate == 0) return x;
  return builder_.emit1(op, {x, builder_.step_state()},
                        {{"rate", rate}, {"stream", static_cast<int64_t>(random_stream(name))}});
}

void LayerContext::add_router(RouterInfo info, ValueId logits, ValueId offsets) {
  if (decoding_ != nullptr || !constant_.empty()) return;
  const auto made = builder_.emit("router_losses", {logits, offsets});
  routers_.push_back({std::move(info), made[0], made[1]});
}

ValueId LayerContext::add(Role role, const std::string& name, const Shape& memory,
                          const Initializer& initializer, FileLayout file) {
  const std::string full = join_path(path(), name);
  ParameterInfo info{.name = shared_name(full),
                     .spec = {memory, accumulation_dtype(compute_)},
                     .role = role,
                     .initializer = initializer,
                     .file = std::move(file)};
  if (info.name != full) {
    // A copy has the initialiser of the first layer; this call marks it as used.
    if (!copies_.empty()) initializer_of(name, initializer, info.file);
    // A head that shares the weight of an embedding has its own bias.
    const bool own_bias =
        name == "bias" && emission_->layer.kind == "lm_head" && emission_->found_shared;
    const ValueId shared = find_shared(info, own_bias);
    if (shared != kNoValue) return shared;
    info.name = full;
  }
  info.initializer = initializer_of(name, initializer, info.file);
  if (!index_.emplace(full, parameters_.size()).second) {
    fail(ExitCode::usage, "two parameters are called {}; give the layers different names", full);
  }
  if (!constant_.empty()) info.role = Role::constant;
  const ValueId value = builder_.add_value(full, info.spec, info.role);
  parameters_.push_back(std::move(info));
  return value;
}

}  // namespace dltrain

// Lists of layers: paths, named inputs, shared parameters. See LayerContext in nn/layer.h.
#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "config/suggest.h"
#include "nn/layer.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr size_t kMaxLayers = 100'000;

std::string join(const std::string& path, std::string_view name) {
  if (name.empty()) return path;
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

// What a name may be made of: it becomes a part of the names in checkpoint files.
bool is_layer_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), letter) && name.front() != '.' &&
         name.back() != '.' && name.find("..") == std::string_view::npos;
}

// "model.layers[2] (linear)": how messages name a layer of the file.
std::string shown(const Layer& layer, const std::string& path) {
  std::string where = layer.place.path.empty() ? path : layer.place.path;
  if (!layer.place.path.empty() && !where.starts_with("model.")) where = "model." + where;
  return fmt::format("{} ({})", where, layer.kind);
}

// A bias that is not there is 0 as well: architectures may say so for layers whose bias is an
// option.
bool is_zero(const InitializerConfig& bias) {
  const auto init = bias.resolve({1});
  return init && init->kind == Initializer::constant && init->value == 0;
}

[[noreturn]] void refuse(const Place& place, std::string message) {
  Problems problems;
  problems.add(place, std::move(message));
  throw ConfigError(std::move(problems));
}

}  // namespace

// The output of a layer that was emitted, or an input of the data (no layer).
struct LayerContext::Output {
  std::string name;  // empty: it has none
  ValueId value = kNoValue;
  const Layer* layer = nullptr;
  std::string path = {};
  bool used = false;
};

// A place where names are looked up: one a list, except that a list named "." shares that of the
// list around it.
struct LayerContext::Names {
  const Names* outer = nullptr;
  std::string named, unnamed;  // what the paths of named and unnamed layers begin with
  int64_t count = 0;
  std::deque<Output> outputs = {};  // a deque: they keep their address
};

struct LayerContext::List {
  Names* names;
  Output* input;
  Output* previous;
};

// One for each layer that is being emitted: what it says of the parameters in it.
struct LayerContext::Emission {
  const Emission* outer;
  const Layer& layer;
  std::string path;
  std::string shared = {};  // path of the layer that `share` names
  mutable bool found_shared = false, used_weight_init = false, used_bias_init = false;
};

void Layer::describe_common(Fields& f) {
  f.text("name", name,
         {.doc = "Its part of the names of parameters, instead of its number in the list, and what "
                 "inputs and share call it; \".\": layers inside are named and counted as if they "
                 "stood in the list around"});
  f.texts("inputs", inputs,
          {.doc = "What it reads: names of earlier layers of this list or of a list around it, of "
                  "inputs of the data, `previous` (the layer before), `input` (what the list "
                  "gets); default: previous",
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"input", "from"}});
  f.text("share", share,
         {.doc = "Name of an earlier layer whose parameters it uses instead of its own",
          .known_as = {"tie", "shared", "tied_to"}});
  f.one_of(
      "weight_init", weight_init, initializer_table(),
      {.doc = "Initial values of its weight; of a layer with layers: of all weights in it that "
              "have two axes or more",
       .known_as = {"init", "kernel_initializer", "initializer"}});
  f.one_of("bias_init", bias_init, initializer_table(),
           {.doc = "Initial values of its bias", .known_as = {"bias_initializer"}});
}

ValueId Layer::emit_inputs(LayerContext& context, std::span<const ValueId> values) const {
  if (values.size() != 1) fail(ExitCode::usage, "takes one input, got {}", values.size());
  return emit(context, values.front());
}

ValueId Layer::emit(LayerContext&, ValueId) const {
  check_internal(false, "layer {} emits nothing", kind);
  return kNoValue;
}

ValueId LayerContext::emit_model(const std::vector<std::unique_ptr<Layer>>& layers,
                                 const Inputs& fields, const Place& model) {
  Names data;
  for (const auto& [name, value] : fields) data.outputs.push_back({.name = name, .value = value});
  Names names{.outer = &data, .named = constant_, .unnamed = join(constant_, "layers")};
  List list{&names, &data.outputs.front(), &data.outputs.front()};
  const ValueId out = emit_layers(layers, list);
  for (const Output& field : data.outputs) {
    if (!field.used) refuse(model, fmt::format("no layer reads the data's '{}'", field.name));
  }
  return out;
}

ValueId LayerContext::emit_list(const std::vector<std::unique_ptr<Layer>>& layers, ValueId x,
                                std::string_view prefix) {
  Output input{.name = "", .value = x};
  const bool spliced = spliced_ && prefix.empty();
  Names own{
      .outer = list_ ? list_->names : nullptr, .named = path(), .unnamed = join(path(), prefix)};
  List list{spliced ? list_->names : &own, &input, &input};
  const ValueId out = emit_layers(layers, list);
  if (!input.used) fail(ExitCode::usage, "no layer in it reads its input");
  return out;
}

ValueId LayerContext::emit_inside(std::string_view name, const std::function<ValueId()>& emit) {
  const std::string outer_path = path();
  const bool outer_spliced = std::exchange(spliced_, false);
  builder_.set_layer(join(outer_path, name));
  const ValueId out = emit();
  builder_.set_layer(outer_path);
  spliced_ = outer_spliced;
  return out;
}

ValueId LayerContext::emit_copy(std::string_view first, std::string_view name,
                                const std::function<ValueId()>& emit) {
  copies_.emplace_back(join(path(), name), join(path(), first));
  const ValueId out = emit_inside(name, emit);
  copies_.pop_back();
  return out;
}

ValueId LayerContext::emit_layers(const std::vector<std::unique_ptr<Layer>>& layers, List& list) {
  for (const auto& layer : layers) emit_layer(*layer, list);
  list.previous->used = true;
  const bool closes = list_ == nullptr || list_->names != list.names;
  for (const Output& output : list.names->outputs) {
    if (!closes || output.used) continue;
    refuse(output.layer->place,
           fmt::format("nothing uses the output of {}", shown(*output.layer, output.path)));
  }
  return list.previous->value;
}

ValueId LayerContext::emit_layer(const Layer& layer, List& list) {
  const std::string path = path_of(layer, list);
  const std::vector<ValueId> inputs = inputs_of(layer, list);
  const ValueId out = emit_at(layer, path, inputs, list);
  const std::string name = layer.name == "." ? "" : layer.name.value_or("");
  list.names->outputs.push_back({.name = name, .value = out, .layer = &layer, .path = path});
  list.previous = &list.names->outputs.back();
  return out;
}

std::string LayerContext::path_of(const Layer& layer, List& list) {
  Names& names = *list.names;
  if (layer.name == ".") return names.named;
  const int64_t number = names.count++;
  std::string path = join(names.unnamed, std::to_string(number));
  if (layer.name) {
    const Place& place = layer.place_of("name");
    if (!is_layer_name(*layer.name) || *layer.name == "previous" || *layer.name == "input") {
      refuse(place, fmt::format("'{}' cannot be the name of a layer", *layer.name));
    }
    for (const Names* n = &names; n != nullptr; n = n->outer) {
      for (const Output& other : n->outputs) {
        const bool field = other.layer == nullptr;
        if (other.name != *layer.name || (n != &names && !field)) continue;
        refuse(place, fmt::format("{} is called '{}' already",
                                  field ? "an input of the data" : "an earlier layer", other.name));
      }
    }
    path = join(names.named, *layer.name);
  }
  const auto [known, is_new] = paths_.emplace(path, layer.place);
  if (!is_new) {
    refuse(layer.place, fmt::format("{} would have the name {}, as the layer at {} has; give it "
                                    "another `name`",
                                    shown(layer, path), path, to_string(known->second)));
  }
  if (paths_.size() > kMaxLayers)
    refuse(layer.place, fmt::format("more than {} layers", kMaxLayers));
  return path;
}

LayerContext::Output* LayerContext::find_output(const List& list, std::string_view name) {
  if (name == "previous") return list.previous;
  if (name == "input") return list.input;
  for (const Names* names = list.names; names != nullptr; names = names->outer) {
    for (const Output& output : names->outputs) {
      if (output.name == name) return const_cast<Output*>(&output);
    }
  }
  return nullptr;
}

// "no earlier layer is called 'convl'; did you mean 'conv1'?"
std::string LayerContext::no_output(const List& list, std::string_view name) {
  std::vector<std::string> known;
  for (const Names* names = list.names; names != nullptr; names = names->outer) {
    for (const Output& output : names->outputs) {
      if (!output.name.empty()) known.push_back(output.name);
    }
  }
  if (name == "source" || name == "source_lengths" || name == "decoder_input") {
    return fmt::format(
        "the data has no input '{}' (jsonl data with source and target has one), and no earlier "
        "layer is called so",
        name);
  }
  std::string message = fmt::format("no earlier layer is called '{}'", name);
  if (const std::string near = nearest_name(name, known); !near.empty()) {
    message += fmt::format("; did you mean '{}'?", near);
  }
  return message;
}

std::vector<ValueId> LayerContext::inputs_of(const Layer& layer, List& list) {
  if (!layer.inputs) {
    list.previous->used = true;
    return {list.previous->value};
  }
  std::vector<ValueId> values;
  for (const std::string& name : *layer.inputs) {
    Output* output = find_output(list, name);
    if (output == nullptr) refuse(layer.place_of("inputs"), no_output(list, name));
    output->used = true;
    values.push_back(output->value);
  }
  return values;
}

ValueId LayerContext::emit_at(const Layer& layer, const std::string& path,
                              const std::vector<ValueId>& inputs, List& list) {
  Emission emission{.outer = emission_, .layer = layer, .path = path};
  if (layer.share) {
    const Output* of = find_output(list, *layer.share);
    const Place& place = layer.place_of("share");
    if (of == nullptr) refuse(place, no_output(list, *layer.share));
    if (of->layer == nullptr || of->name.empty() || layer.name == ".") {
      refuse(place, "share takes the name of a layer, and stands in a layer whose name is not '.'");
    }
    emission.shared = of->path;
  }
  const std::string outer_path = this->path();
  List* outer_list = std::exchange(list_, &list);
  const bool outer_spliced = std::exchange(spliced_, layer.name == ".");
  emission_ = &emission;
  builder_.set_layer(path);
  ValueId out = kNoValue;
  try {
    out = layer.emit_inputs(*this, inputs);
    if (layer.share && !emission.found_shared)
      fail(ExitCode::usage, "it has no parameters to share");
    if (layer.weight_init && !emission.used_weight_init) {
      refuse(layer.place_of("weight_init"), shown(layer, path) + " has no weight of its own");
    }
    if (layer.bias_init && !emission.used_bias_init && !is_zero(*layer.bias_init)) {
      refuse(layer.place_of("bias_init"), shown(layer, path) + " has no bias of its own");
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    std::string message = error.what();
    if (const std::string prefix = builder_.layer() + ": "; message.starts_with(prefix)) {
      message = message.substr(prefix.size());
    }
    std::string shapes;
    for (ValueId input : inputs) {
      shapes += (shapes.empty() ? "" : ", ") + to_string(shape(input));
    }
    refuse(layer.place, fmt::format("{} on {}: {}", shown(layer, path), shapes, message));
  }
  builder_.set_layer(outer_path);
  emission_ = emission.outer;
  spliced_ = outer_spliced;
  list_ = outer_list;
  return out;
}

// The name of a parameter `full` with every `share` and every copy around it applied, from the
// innermost to the outermost.
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

// What the innermost layer that says so wants, else the model, else `own`, the layer's choice.
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
  // Fans count from [out, in]; the rows of an orthogonal matrix are those of the file.
  Initializer init = found->resolve(layout.in_first ? Shape{file[1], file[0]} : file).value_or(own);
  if (init.kind == Initializer::orthogonal) init.rows = file[0];
  init.zeros_at = own.zeros_at;
  return init;
}

// kNoValue where the layer that is shared with has none, and this one may have its own.
ValueId LayerContext::find_shared(const ParameterInfo& wanted, bool own_bias) {
  if (wanted.role != Role::parameter) {
    fail(ExitCode::usage, "running statistics cannot be shared");
  }
  const auto at = index_.find(wanted.name);
  if (at == index_.end() && own_bias) return kNoValue;
  if (at == index_.end()) {
    fail(ExitCode::usage, "the layer that it shares with has no {}", wanted.name);
  }
  const ParameterInfo& there = parameters_[at->second];
  if (!(there.spec == wanted.spec) || !(there.file.shape == wanted.file.shape) ||
      there.file.permutation != wanted.file.permutation) {
    fail(ExitCode::usage, "{} is {}, this layer needs {}", there.name, to_string(there.file.shape),
         to_string(wanted.file.shape));
  }
  for (const Emission* e = emission_; e != nullptr; e = e->outer) e->found_shared = true;
  return builder_.graph().find(wanted.name);
}

int64_t LayerContext::vocabulary() {
  if (vocabulary_ <= 0) {
    fail(ExitCode::usage,
         "the data has no ids that would tell the size of the vocabulary; set model.vocab_size");
  }
  asked_vocabulary_ = true;
  return vocabulary_;
}

// Evaluation has state of its own: its pass may stand between two steps of training.
ValueId LayerContext::carried(const std::string& name, int64_t samples, int64_t width) {
  if (!constant_.empty()) fail(ExitCode::usage, "a teacher's state is not carried");
  if (streams_.rows == 0) {
    fail(ExitCode::usage,
         "state is carried only where each batch goes on where the one before ended: it needs data "
         "of type text, tokens or jsonl with `sampling: streams`");
  }
  const std::string full = join(path(), name);
  const ValueId state = builder_.add_value(training_ ? full : "evaluation." + full,
                                           {{streams_.rows, width}, accumulation_dtype(compute_)},
                                           training_ ? Role::carried : Role::pass);
  carried_.emplace(full, state);
  return builder_.emit1("carried_state", {builder_.step_state(), state},
                        {{"samples", samples}, {"steps", streams_.steps}});
}

// In training the state is replaced once the whole global batch is done, and only by a finite step.
void LayerContext::carry(const std::string& name, ValueId x) {
  const std::string full = join(path(), name);
  const ValueId state = carried_.at(full);
  if (!training_) {
    builder_.emit("carry_state_in_place", {builder_.step_state(), x, state});
    return;
  }
  const ValueId rows =
      builder_.emit1("carry_state", {builder_.step_state(), x}, {{"rows", streams_.rows}});
  const ValueId next = builder_.accumulate(rows, "next." + full, Role::statistic);
  defer_update("carried_update", {state, next}, {});
}

ValueId LayerContext::add(Role role, const std::string& name, const Shape& memory,
                          const Initializer& initializer, FileLayout file) {
  const std::string full = join(path(), name);
  ParameterInfo info{.name = shared_name(full),
                     .spec = {memory, accumulation_dtype(compute_)},
                     .role = role,
                     .initializer = initializer,
                     .file = std::move(file)};
  if (info.name != full) {
    // What a copy says of its initial values is that of the first, where it was used.
    if (!copies_.empty()) initializer_of(name, initializer, info.file);
    // A head that shares the weight of an embedding has its bias for itself.
    const bool own_bias =
        name == "bias" && emission_->layer.kind == "lm_head" && emission_->found_shared;
    const ValueId shared = find_shared(info, own_bias);
    if (shared != kNoValue) return shared;
    info.name = full;
  }
  info.initializer = initializer_of(name, initializer, info.file);
  if (!index_.emplace(full, parameters_.size()).second) {
    fail(ExitCode::usage, "two parameters are called {}; name the layers apart", full);
  }
  if (!constant_.empty()) info.role = Role::constant;
  const ValueId value = builder_.add_value(full, info.spec, info.role);
  parameters_.push_back(std::move(info));
  return value;
}

}  // namespace dltrain

// Emits lists of layers with their paths and named inputs. See LayerContext in nn/layer.h.
#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "nn/emission.h"

namespace dltrain {
namespace {

constexpr size_t kMaxModelLayers = 100'000;
constexpr std::string_view kPlacesInDocuments = "document_positions";

// Returns whether a name is valid: it becomes a part of the names in checkpoint files.
bool is_layer_name(std::string_view name) {
  const auto letter = [](char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '.'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), letter) && name.front() != '.' &&
         name.back() != '.' && name.find("..") == std::string_view::npos;
}

// Returns the name of a layer for messages: "model.layers[2] (linear)", or in a built-in
// architecture "layer h.0.attn.c_attn (linear)".
std::string shown_emit_list(const Layer& layer, const std::string& path) {
  if (layer.location.source && layer.location.source->is_built_in) {
    return fmt::format("layer {} ({})", path, layer.kind);
  }
  std::string where = layer.location.path.empty() ? path : layer.location.path;
  if (!layer.location.path.empty() && !where.starts_with("model.")) where = "model." + where;
  return fmt::format("{} ({})", where, layer.kind);
}

// Returns the place where a user can change the layer: in a built-in architecture, the argument
// that `message` contains.
const SourceLocation& location_to_change(const Layer& layer, const std::string& message) {
  if (!layer.location.source || !layer.location.source->is_built_in) return layer.location;
  for (const ConfigObject::KeyLocation& key : layer.given_keys) {
    const bool by_user = key.location.source && !key.location.source->is_built_in;
    if (by_user && mentions_name(message, key.key)) return key.location;
  }
  return layer.location;
}

// Architectures may set a zero bias_init for layers whose bias is optional.
bool is_zero(const InitializerConfig& bias) {
  const auto init = bias.resolve({1});
  return init && init->kind == Initializer::constant && init->value == 0;
}

}  // namespace

// The output of an emitted layer, or an input of the data (without a layer).
struct LayerContext::Output {
  std::string name;  // may be empty
  ValueId value = kNoValue;
  const Layer* layer = nullptr;
  std::string path = {};
  bool used = false;
};

// The names of a list of layers. A list named "." shares those of the list around it.
struct LayerContext::Names {
  const Names* outer = nullptr;
  std::string named, unnamed;  // prefixes of the paths of named and unnamed layers
  int64_t count = 0;
  std::deque<Output> outputs = {};  // a deque keeps their addresses
};

struct LayerContext::List {
  Names* names;
  Output* input;
  Output* previous;
};

void Layer::describe_common(Fields& f) {
  f.text("name", name,
         {.doc = "Its name in the names of parameters (default: its number in the list) and in "
                 "`inputs` and `share`; \".\": the layers inside are named and counted as part of "
                 "the enclosing list"});
  f.texts("inputs", inputs,
          {.doc = "Its inputs: names of earlier layers of this list or an enclosing list, of "
                  "inputs of the data, `previous` (the layer before), `input` (the input of the "
                  "list); `\"name?\"` is ignored if nothing has this name; default: previous",
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"input", "from"}});
  f.text("share", share,
         {.doc = "Name of an earlier layer whose parameters it uses instead of its own",
          .known_as = {"tie", "shared", "tied_to"}});
  f.one_of("weight_init", weight_init, initializer_table(),
           {.doc = "Initial values of its weight; for a layer with layers, of all weights of two "
                   "axes or more in it",
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
                                 const Inputs& fields, const SourceLocation& model) {
  Names data;
  for (const auto& [name, value] : fields) data.outputs.push_back({.name = name, .value = value});
  Names names{.outer = &data, .named = constant_, .unnamed = join_path(constant_, "layers")};
  List list{&names, &data.outputs.front(), &data.outputs.front()};
  const size_t first_node = builder_.graph().nodes.size();
  const ValueId out = emit_layers(layers, list);
  if (lora_ != nullptr) add_adapters(*lora_, first_node, out);
  for (const Output& field : data.outputs) {
    if (field.used) continue;
    fail_at(model, "no layer reads the data's '{}'{}", field.name,
            field.name == kPlacesInDocuments ? " (data.document_mask is for attention)" : "");
  }
  return out;
}

ValueId LayerContext::emit_list(const std::vector<std::unique_ptr<Layer>>& layers, ValueId x,
                                std::string_view prefix) {
  Output input{.name = "", .value = x};
  const bool spliced = list_ != nullptr && spliced_ && prefix.empty();
  Names own{.outer = list_ ? list_->names : nullptr,
            .named = path(),
            .unnamed = join_path(path(), prefix)};
  List list{spliced ? list_->names : &own, &input, &input};
  const ValueId out = emit_layers(layers, list);
  if (!input.used) fail(ExitCode::usage, "no layer in it reads its input");
  return out;
}

ValueId LayerContext::emit_inside(std::string_view name, const std::function<ValueId()>& emit) {
  const std::string outer_path = path();
  const bool outer_spliced = std::exchange(spliced_, false);
  builder_.set_layer(join_path(outer_path, name));
  const ValueId out = emit();
  builder_.set_layer(outer_path);
  spliced_ = outer_spliced;
  return out;
}

ValueId LayerContext::emit_copy(std::string_view first, std::string_view name,
                                const std::function<ValueId()>& emit) {
  copies_.emplace_back(join_path(path(), name), join_path(path(), first));
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
    fail_at(output.layer->location, "nothing uses the output of {}",
            shown_emit_list(*output.layer, output.path));
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
  std::string path = join_path(names.unnamed, std::to_string(number));
  if (layer.name) {
    const SourceLocation& location = layer.location_of("name");
    if (!is_layer_name(*layer.name) || *layer.name == "previous" || *layer.name == "input") {
      fail_at(location, "'{}' cannot be the name of a layer", *layer.name);
    }
    for (const Names* n = &names; n != nullptr; n = n->outer) {
      for (const Output& other : n->outputs) {
        const bool field = other.layer == nullptr;
        if (other.name != *layer.name || (n != &names && !field)) continue;
        fail_at(location, "{} is called '{}' already",
                field ? "an input of the data" : "an earlier layer", other.name);
      }
    }
    path = join_path(names.named, *layer.name);
  }
  const auto [known, is_new] = paths_.emplace(path, layer.location);
  if (!is_new) {
    fail_at(layer.location,
            "{} would have the name {}, as the layer at {} has; give it another `name`",
            shown_emit_list(layer, path), path, to_string(known->second));
  }
  if (paths_.size() > kMaxModelLayers)
    fail_at(layer.location, "more than {} layers", kMaxModelLayers);
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

ValueId LayerContext::document_positions() const {
  for (const Names* names = list_ ? list_->names : nullptr; names != nullptr;
       names = names->outer) {
    for (const Output& output : names->outputs) {
      if (output.layer != nullptr || output.name != kPlacesInDocuments) continue;
      const_cast<Output&>(output).used = true;
      return output.value;
    }
  }
  return kNoValue;
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
        "no earlier layer or input of the data is called '{}' (jsonl data with source and target "
        "has it)",
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
    const bool optional = name.ends_with('?');
    Output* output = find_output(list, optional ? name.substr(0, name.size() - 1) : name);
    if (output == nullptr && optional) continue;
    if (output == nullptr) fail_at(layer, "inputs", "{}", no_output(list, name));
    output->used = true;
    values.push_back(output->value);
  }
  if (values.empty()) fail_at(layer, "inputs", "none of its inputs exists");
  return values;
}

ValueId LayerContext::emit_at(const Layer& layer, const std::string& path,
                              const std::vector<ValueId>& inputs, List& list) {
  Emission emission{.outer = emission_, .layer = layer, .path = path};
  if (layer.share) {
    const Output* of = find_output(list, *layer.share);
    const SourceLocation& location = layer.location_of("share");
    if (of == nullptr) fail_at(location, "{}", no_output(list, *layer.share));
    if (of->layer == nullptr || of->name.empty() || layer.name == ".") {
      fail_at(location,
              "share needs the name of a layer, and cannot be used in a layer called '.'");
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
      fail_at(layer, "weight_init", "{} has no weight of its own", shown_emit_list(layer, path));
    }
    if (layer.bias_init && !emission.used_bias_init && !is_zero(*layer.bias_init)) {
      fail_at(layer, "bias_init", "{} has no bias of its own", shown_emit_list(layer, path));
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage && error.code() != ExitCode::memory) throw;
    std::string message = error.what();
    if (const std::string prefix = builder_.layer() + ": "; message.starts_with(prefix)) {
      message = message.substr(prefix.size());
    }
    const SourceLocation& location = location_to_change(layer, message);
    std::string shapes;
    for (ValueId input : inputs) {
      shapes += (shapes.empty() ? "" : ", ") + to_string(shape(input));
      const TensorSpec spec = builder_.spec(input);
      if (spec.dtype != DType::i32 || !message.ends_with(to_string(spec))) continue;
      const Graph& graph = builder_.graph();
      const std::string& name = graph.value(graph.storage(input)).name;  // "input.<name>"
      message += fmt::format(
          " ('{}' has integers, which are ids for an embedding; save them as float32 to use them "
          "as numbers)",
          name.substr(name.find('.') + 1));
    }
    message = fmt::format("{} on {}: {}", shown_emit_list(layer, path), shapes, message);
    if (error.code() == ExitCode::memory) {
      throw Error(ExitCode::memory, message, to_string(layer.location));
    }
    fail_at(location, "{}", message);
  }
  builder_.set_layer(outer_path);
  emission_ = emission.outer;
  spliced_ = outer_spliced;
  list_ = outer_list;
  return out;
}

}  // namespace dltrain

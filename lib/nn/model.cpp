#include "nn/model.h"

#include <algorithm>

#include "base/error.h"
#include "config/key_index.h"
#include "config/suggest.h"
#include "nn/huggingface/folder.h"
#include "nn/model_files.h"

namespace dltrain {
namespace {

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : model_files()) names.emplace_back(file.name);
  return names;
}

std::vector<std::string> names_of(const std::vector<IndexedKey>& keys) {
  std::vector<std::string> names;
  for (const IndexedKey& key : keys) names.push_back(key.name);
  return names;
}

// Returns the keys that every layer has.
std::vector<std::string> layer_keys() {
  struct Common {
    Layer& layer;
    void describe(Fields& f) { layer.describe_common(f); }
  };
  const auto layer = make_kind(layer_table(), "sequential");
  Common common{*layer};
  return names_of(own_keys(ObjectRef::of(common)));
}

// Expands {type: resnet18, num_classes: 10, …}. Keys that the section lacks are arguments.
void expand_architecture(ConfigNode& map, Diagnostics& diagnostics) {
  const ConfigNode type = *map.find("type");
  for (const char* key : {"layers", "blocks"}) {
    if (const ConfigNode* other = map.find(key)) {
      diagnostics.add(other->location,
                      "model has both type and {0}; keep one ({0}: null, or type: null, removes "
                      "that of another file)",
                      key);
    }
  }
  if (!diagnostics.empty()) return;
  const auto files = model_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& f) {
    return type.is_scalar() && f.name == type.text;
  });
  if (file == files.end()) {
    diagnostics.add(type.location, "no architecture is called {}{}",
                    type.is_scalar() ? fmt::format("'{}'", type.text) : describe_found(type),
                    suggest_near(type.is_scalar() ? type.text : "", architecture_names()));
    return;
  }
  ModelConfig model;
  const std::vector<std::string> own = names_of(own_keys(ObjectRef::of(model)));
  ConfigNode arguments = ConfigNode::make_map(map.location);
  ConfigNode rest = ConfigNode::make_map(map.location);
  for (size_t i = 0; i < map.keys.size(); ++i) {
    if (map.keys[i].text == "type") continue;
    (contains(own, map.keys[i].text) ? rest : arguments).set(map.keys[i], map.items[i]);
  }
  ConfigNode layers = instantiate_model(*file, arguments, type, layer_keys(), own, diagnostics);
  rest.set({"layers", type.location}, std::move(layers));
  map = std::move(rest);
}

}  // namespace

bool ModelConfig::rewrite(ConfigNode& map, Diagnostics& diagnostics) {
  Diagnostics found;
  // A file or option on top of others may replace the way in which they choose the model.
  for (const char* key : {"type", "layers", "blocks", "from"}) {
    if (const ConfigNode* value = map.find(key); value != nullptr && value->is_null()) {
      map.erase(key);
    }
  }
  if (map.find("from") != nullptr && !rewrite_huggingface_model(map, found)) {
    diagnostics.append(found);
    return false;
  }
  if (map.find("type") != nullptr) {
    expand_architecture(map, found);
  } else {
    BlockExpander expander(layer_keys(), found);
    if (const ConfigNode* blocks = map.find("blocks")) expander.define(*blocks);
    if (ConfigNode* layers = map.find("layers")) *layers = expander.expand(*layers);
    map.erase("blocks");
  }
  diagnostics.append(found);
  return found.empty();
}

void ModelConfig::describe(Fields& f) {
  f.list_of("layers", layers, layer_table(),
            {.doc = "Applied one after the other; a layer without a name is called layers.<number>",
             .required = true,
             .min_size = 1});
  f.rewritten(
      "type", {.type = "name of an architecture", .schema = R"({"type": "string"})"},
      {.doc = "A named architecture instead of layers: " + join_names(architecture_names()) +
              ". `dltrain list models` shows their keys, which are written beside `type`"});
  f.rewritten("…", {.type = "keys of the architecture", .schema = "", .free_names = true},
              {.doc = "Keys of the architecture, such as num_classes"});
  f.rewritten("from", {.type = "path", .schema = R"({"type": "string"})"},
              {.doc = "Folder of a Hugging Face model (config.json and safetensors files) with the "
                      "architecture and the initial weights. Keys of the architecture beside it "
                      "replace those of the folder",
               .is_path = true,
               .known_as = {"from_pretrained", "model_name_or_path", "base_model"}});
  f.rewritten("blocks",
              {.type = "map of names to blocks",
               .schema = R"({"type": "object", "additionalProperties": {"type": "object",
                             "properties": {"parameters": {"type": "object"},
                                            "layers": {"type": "array"}},
                             "additionalProperties": false}})"},
              {.doc = "Lists of layers that are used with arguments, as {block: NAME, …}; "
                      "`parameters` gives names and defaults, and $name stands for an argument in "
                      "`layers`"});
  f.one_of("init", init, initializer_table(),
           {.doc = "Initial values of all weights of two axes or more, unless a layer has its "
                   "own; absent: PyTorch's for each layer",
            .known_as = {"weight_init", "initializer", "kernel_initializer"}});
  f.boolean("final_bias_from_data", final_bias_from_data,
            {.doc = "Start the bias of the last layer from the training targets: logarithms of the "
                    "class frequencies, or the mean of targets that are numbers"});
  f.text("init_from", init_from,
         {.doc = "Safetensors file with initial weights, matched by parameter name; a folder with "
                 "model.safetensors or its shards, such as a checkpoint; or a run folder (its "
                 "newest checkpoint). With Hugging Face's config.json beside the weights, `rename` "
                 "is not needed",
          .is_path = true,
          .known_as = {"pretrained", "weights", "checkpoint"}});
  f.text_map("rename", rename,
             {.doc = "Pairs of regular expression and replacement, applied in order to the names "
                     "in the init_from file"});
  f.boolean(
      "strict", strict,
      {.doc =
           "Refuse an init_from file that lacks a parameter, has a surplus tensor, or a tensor of "
           "another shape; otherwise these are listed, and parameters without a tensor keep their "
           "initial values. A file without any of the parameters is always refused"});
  f.integer("vocab_size", vocab_size,
            {.doc = "Number of ids of an embedding without num_embeddings and of lm_head; default: "
                    "that of the data's first input and targets",
             .min = 1,
             .max = 2147483647,
             .known_as = {"vocabulary_size", "num_embeddings"}});
  f.integer(
      "pad_vocab_to", pad_vocab_to,
      {.doc = "Compute the products of the last layer, the gradients' too, with a multiple of "
              "so many classes, such as 128, which tensor cores need; the loss does not see "
              "the padding. Weights, files and losses are those of the true size. Absent: on "
              "GPUs 8, where logits are large",
       .min = 1,
       .max = 65536,
       .known_as = {"pad_vocab_size_multiple_of", "make_vocab_size_divisible_by",
                    "pad_to_multiple_of"}});
  f.section("lora", lora,
            {.doc = "Low-rank adapters beside linear layers: they are trained, the model itself is "
                    "frozen (docs/training.md)",
             .known_as = {"peft", "adapters", "peft_config"}});
}

void ModelConfig::validate(Diagnostics& diagnostics) const {
  if (!init_from && !rename.empty()) {
    diagnostics.add(*this, "rename", "rename needs init_from");
  }
}

std::string teacher_name(size_t index, size_t count) {
  return count == 1 ? "teacher" : fmt::format("teacher.{}", index);
}

EmittedModel emit_model(const ModelRequest& r) {
  EmittedModel out;
  GraphBuilder builder(out.graph);
  LayerContext context(builder, r.training, r.compute, r.ghost_groups);
  LayerContext::Inputs fields;
  for (const InputSpec& input : r.inputs) {
    std::vector<int64_t> dims{r.samples};
    dims.insert(dims.end(), input.sample.shape.begin(), input.sample.shape.end());
    const DType dtype = input.sample.dtype == DType::f32 ? r.compute : input.sample.dtype;
    out.inputs.push_back(
        builder.add_value("input." + input.name, {Shape(dims), dtype}, Role::input));
    fields.emplace_back(input.name, out.inputs.back());
  }
  context.set_noise(r.noise);
  context.set_default_init(r.model.init.get());
  context.set_vocabulary(r.model.vocab_size.value_or(r.vocabulary));
  context.set_outputs(r.outputs);
  context.set_streams(r.streams);
  context.set_lora(r.model.adapters());
  out.output = context.emit_model(r.model.layers, fields, r.model.location);
  for (size_t i = 0; i < r.teachers.size(); ++i) {
    const ModelConfig& model = *r.teachers[i];
    LayerContext teacher(builder, /*training=*/false, r.compute, r.ghost_groups);
    teacher.make_constant(teacher_name(i, r.teachers.size()));
    teacher.set_vocabulary(model.vocab_size.value_or(r.vocabulary));
    teacher.set_lora(model.adapters());
    context.add_teacher_output(teacher.emit_model(model.layers, fields, model.location));
    const auto& constants = teacher.parameters();
    out.constants.insert(out.constants.end(), constants.begin(), constants.end());
  }
  builder.set_layer("loss");
  try {
    const TensorSpec output = builder.spec(out.output);
    const TargetInfo targets = mixed_targets(r.loss, output, r.targets);
    out.targets = builder.add_value("targets", r.loss.targets(output, targets), Role::input);
    out.loss = r.loss.emit(context, out.output, out.targets, targets);
    if (out.loss.row_losses != kNoValue) {
      out.sources =
          builder.add_value("sources", {builder.spec(out.targets).shape, DType::i32}, Role::input);
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    fail_at(r.loss.location.known() ? r.loss.location : r.model.location, "{}", error.what());
  }
  builder.set_layer("");
  out.asked_vocabulary = context.asked_vocabulary();
  if (r.model.vocab_size && !out.asked_vocabulary) {
    fail_at(r.model, "vocab_size", "no layer uses this size");
  }
  out.parameters = context.parameters();
  out.updates = context.updates();
  out.routers = context.routers();
  return out;
}

}  // namespace dltrain

// The `model` section, and the emission of a whole network into a graph.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "nn/lora.h"
#include "nn/loss.h"

namespace dltrain {

struct ModelConfig : ConfigObject {
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<InitializerConfig> init;
  bool final_bias_from_data = false;
  std::optional<std::string> init_from;
  TextPairs rename;
  bool strict = true;
  std::optional<int64_t> vocab_size, pad_vocab_to;
  std::optional<LoraConfig> lora;

  const LoraConfig* adapters() const { return lora ? &*lora : nullptr; }

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
  // Replaces a named architecture (`type`) and the uses of blocks by layers: nn/blocks.h.
  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
};

// The name and spec of one input of the model.
struct InputSpec {
  std::string name;
  TensorSpec sample;  // without the axis of samples; f32 becomes the compute dtype
};

// The forward of one micro-batch in a graph.
struct EmittedModel {
  Graph graph;
  std::vector<ValueId> inputs;  // role input, "input.<name>"
  ValueId targets;              // role input, "targets"
  ValueId sources = kNoValue;   // likewise "sources", of the shape of the targets
  ValueId output;               // logits
  LossOutput loss;
  std::vector<ParameterInfo> parameters;  // in order of emission
  std::vector<ParameterInfo> constants;   // of the teachers, "<teacher_name()>.<name>"
  std::vector<LayerContext::DeferredUpdate> updates;
  std::vector<EmittedRouter> routers = {};
  bool asked_vocabulary = false;  // a layer takes the size of the vocabulary
};

struct ModelRequest {
  const ModelConfig& model;
  const Loss& loss;
  std::vector<const ModelConfig*> teachers = {};  // run beside the model on the same inputs
  std::vector<InputSpec> inputs;                  // the first is what the first layer gets
  TargetInfo targets = {};
  int64_t vocabulary = 0;  // of the data, if the model has no vocab_size; 0: unknown
  int64_t outputs = 0;     // of the data; 0: unknown
  StreamInfo streams = {};
  int64_t samples = 0;  // of the micro-batch
  bool training = true;
  bool noise = true;  // of training: dropout; false: layers do not randomise
  DType compute = DType::f32;
  int64_t ghost_groups = 1;
};

// The name of a teacher's layers: "teacher", of several "teacher.0", "teacher.1", …
std::string teacher_name(size_t index, size_t count);

// Emits layers and loss. Throws ConfigError for a layer that does not fit its input, with its place
// in the file, its path and both shapes.
EmittedModel emit_model(const ModelRequest& request);

}  // namespace dltrain

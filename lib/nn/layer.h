// A layer describes its keys, for parser, reference and schema, and emits ops, whose gradients are
// derived. Each layer has its own file; the table is nn/registry.cpp. Layers may contain layers
// (nn/structure.cpp).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/fields.h"
#include "graph/builder.h"
#include "nn/parameters.h"
#include "nn/routers.h"

namespace dltrain {

struct Decoding;
struct Layer;
struct LoraConfig;

// Parallel streams that the batches continue (data of `sampling: streams`): sample r of the global
// batch belongs to stream r.
struct StreamInfo {
  int64_t rows = 0;   // streams = samples of the global batch; 0: batches are not connected
  int64_t steps = 0;  // steps after which all streams restart
};

// The context in which layers emit ops. One context serves one graph; evaluation has its own.
//
// Paths name parameters and nodes. A layer's path is the path of the enclosing layer and its own
// name, or its number in the list if it has no name: "layers.2", "layer1.0.conv1". The name "."
// adds nothing: the layers inside are named and counted as part of the enclosing list.
class LayerContext {
 public:
  // `compute` is the dtype of activations; parameters have its accumulation dtype.
  // `ghost_groups`: micro-batches in the global batch (batch statistics are averaged over them).
  LayerContext(GraphBuilder& builder, bool training, DType compute, int64_t ghost_groups)
      : builder_(builder), training_(training), compute_(compute), ghost_groups_(ghost_groups) {}

  GraphBuilder& builder() { return builder_; }
  bool training() const { return training_; }
  // Returns whether layers such as dropout use random numbers: in training, unless switched off.
  bool noise() const { return training_ && noise_; }
  void set_noise(bool on) { noise_ = on; }
  DType compute() const { return compute_; }
  int64_t ghost_groups() const { return ghost_groups_; }
  Shape shape(ValueId value) const { return builder_.spec(value).shape; }

  // Returns the path of the layer that is being emitted: "layers.2".
  const std::string& path() const { return builder_.layer(); }

  // Emits layers in sequence on `x`; returns the output of the last, or `x` if there are none.
  // Layers without a name are called "<path>.<list>.<index>". Throws ConfigError with the place of
  // an error in the file.
  ValueId emit_list(const std::vector<std::unique_ptr<Layer>>& layers, ValueId x,
                    std::string_view list = "");
  // Sets the initial values of weights of two axes or more without their own (may be null; must
  // outlive the context).
  void set_default_init(const InitializerConfig* init) { default_init_ = init; }
  // Sets the adapters that emit_model() adds (may be null; must outlive the context).
  void set_lora(const LoraConfig* lora) { lora_ = lora; }
  // Emits the whole model. Its layers may use `fields` by name; the first layer gets the first
  // field. Refuses fields that no layer reads.
  using Inputs = std::vector<std::pair<std::string, ValueId>>;
  ValueId emit_model(const std::vector<std::unique_ptr<Layer>>& layers, const Inputs& fields,
                     const SourceLocation& model);
  // Emits x with another shape, and scale · x + shift.
  ValueId reshape(ValueId x, const std::vector<int64_t>& shape) {
    return builder_.reshape(x, Shape(std::span<const int64_t>(shape)));
  }
  ValueId scaled(ValueId x, double scale, double shift = 0) {
    return builder_.emit1("affine", {x}, {{"scale", scale}, {"shift", shift}});
  }
  // Emits dropout if noise() and the rate is not 0; otherwise returns x. `name` is that of its
  // random stream, `op` is dropout or dropout2d.
  ValueId with_dropout(ValueId x, double rate, std::string_view name,
                       std::string_view op = "dropout");
  // Makes later parameters and buffers constants whose names begin with `name`.
  void make_constant(std::string name) { constant_ = std::move(name); }
  // Returns the vocabulary size for layers without this key: model.vocab_size, or that of the data.
  // Throws Error(usage) if neither is known.
  int64_t vocabulary();
  void set_vocabulary(int64_t size) { vocabulary_ = size; }
  bool asked_vocabulary() const { return asked_vocabulary_; }
  // Returns the number of outputs for the data: its classes, or the numbers of a target. Throws
  // Error(usage) if it is unknown.
  int64_t outputs() const;
  void set_outputs(int64_t outputs) { outputs_ = outputs; }
  // The outputs of the teachers for this micro-batch (nn/distillation.cpp); none in evaluation.
  const std::vector<ValueId>& teacher_outputs() const { return teacher_outputs_; }
  void add_teacher_output(ValueId output) { teacher_outputs_.push_back(output); }
  // Returns nullptr unless the model generates text (nn/decoding.h). The object must outlive the
  // context.
  Decoding* decoding() const { return decoding_; }
  void set_decoding(Decoding* decoding) { decoding_ = decoding; }
  // Runs `emit` as in a layer `name` inside the layer that is being emitted.
  ValueId emit_inside(std::string_view name, const std::function<ValueId()>& emit);
  // Does the same with the parameters of an earlier emit_inside() under the name `first`.
  ValueId emit_copy(std::string_view first, std::string_view name,
                    const std::function<ValueId()>& emit);

  // Returns the parameter "<path>.<name>", or with `share` the other layer's. `memory` is its shape
  // in memory; `file` is given if files have another order of axes.
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer) {
    return add(Role::parameter, name, memory, initializer, {memory, {}});
  }
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer,
                    FileLayout file) {
    return add(Role::parameter, name, memory, initializer, std::move(file));
  }
  // Returns state that training changes without a gradient.
  ValueId buffer(const std::string& name, const Shape& memory, const Initializer& initializer) {
    return add(Role::buffer, name, memory, initializer, {memory, {}});
  }

  // Returns the state [samples, width] of this name from the previous batch, zeros at the start of
  // the streams; no gradient flows into it. Throws Error(usage) if batches are not connected.
  ValueId carried(const std::string& name, int64_t samples, int64_t width);
  // Stores x [samples, width] for the next batch under the name of an earlier carried().
  void carry(const std::string& name, ValueId x);
  void set_streams(const StreamInfo& streams) { streams_ = streams; }

  // Returns the data's input `document_positions` if there is one, else kNoValue: i32 [samples,
  // tokens], the number of tokens before each token in its document. Tokens of other documents are
  // not to be seen.
  ValueId document_positions() const;

  // Adds a state update that runs once a step, after the gradient norm: op(step_state, inputs…).
  void defer_update(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
    updates_.push_back({path(), std::move(op), std::move(inputs), std::move(attributes)});
  }

  // Emits the losses of a router and what reports tell about it; nothing if the model generates
  // text or is a teacher. `logits` and `offsets`: see router_losses (lib/ops/experts.cpp).
  void add_router(RouterInfo info, ValueId logits, ValueId offsets);
  const std::vector<EmittedRouter>& routers() const { return routers_; }

  struct DeferredUpdate {
    std::string layer;
    std::string op;
    std::vector<ValueId> inputs;
    Attributes attributes;
  };

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const std::vector<DeferredUpdate>& updates() const { return updates_; }

 private:
  struct Names;
  struct List;
  struct Emission;
  struct Output;

  ValueId add(Role role, const std::string& name, const Shape& memory,
              const Initializer& initializer, FileLayout file);
  std::string shared_name(const std::string& full) const;
  ValueId find_shared(const ParameterInfo& wanted, bool own_bias);
  ValueId emit_layers(const std::vector<std::unique_ptr<Layer>>& layers, List& list);
  ValueId emit_layer(const Layer& layer, List& list);
  Initializer initializer_of(const std::string& name, const Initializer& own,
                             const FileLayout& layout);
  ValueId emit_at(const Layer& layer, const std::string& path, const std::vector<ValueId>& inputs,
                  List& list);
  std::vector<ValueId> inputs_of(const Layer& layer, List& list);
  static Output* find_output(const List& list, std::string_view name);
  static std::string no_output(const List& list, std::string_view name);
  std::string path_of(const Layer& layer, List& list);
  void add_adapters(const LoraConfig& lora, size_t first_node, ValueId output);
  void adapt(const LoraConfig& lora, Node product, const std::string& module);
  // The length of what precedes the model's own names in those of its parameters: "teacher.".
  size_t prefix_length() const { return constant_.empty() ? 0 : constant_.size() + 1; }

  GraphBuilder& builder_;
  bool training_;
  bool noise_ = true;
  DType compute_;
  int64_t ghost_groups_;
  std::vector<ParameterInfo> parameters_;
  std::vector<DeferredUpdate> updates_;
  std::vector<EmittedRouter> routers_;
  std::map<std::string, size_t, std::less<>> index_;          // of parameters_, by name
  std::map<std::string, SourceLocation, std::less<>> paths_;  // of the layers emitted so far
  std::map<std::string, ValueId> carried_;                    // state of the streams, by name
  const InitializerConfig* default_init_ = nullptr;
  const LoraConfig* lora_ = nullptr;
  const Emission* emission_ = nullptr;  // of the innermost layer that is being emitted
  // Paths of the copies that are being emitted, the outermost first, and of their originals.
  std::vector<std::pair<std::string, std::string>> copies_;
  bool spliced_ = false;  // the current list is named "."
  std::string constant_;  // see make_constant; empty: state is the model's own
  std::vector<ValueId> teacher_outputs_;
  Decoding* decoding_ = nullptr;
  int64_t vocabulary_ = 0;         // 0: unknown
  bool asked_vocabulary_ = false;  // a layer has used it
  int64_t outputs_ = 0;            // 0: unknown
  StreamInfo streams_ = {};
  List* list_ = nullptr;  // the list that is being emitted
};

struct Layer : ConfigVariant {
  // Keys that every layer has.
  std::optional<std::string> name;
  std::optional<std::vector<std::string>> inputs;  // of layers or data; absent: the one before
  std::optional<std::string> share;
  std::unique_ptr<InitializerConfig> weight_init, bias_init;

  void describe(Fields&) override {}
  void describe_common(Fields&) final;
  // Emits the layer on its inputs and returns its output. Throws Error(usage) when they do not fit.
  // A layer with one input overrides the second form, which the first calls.
  virtual ValueId emit_inputs(LayerContext& context, std::span<const ValueId> inputs) const;
  virtual ValueId emit(LayerContext& context, ValueId x) const;
};

// The registry, in table order. Only plug-ins change it (nn/plugin.h).
KindTable<Layer>& layer_table();

// Throws Error(usage) "expects a vector a sample, got [32, 8, 8, 1]; put a flatten layer before
// it".
void expect_vectors(const Shape& shape);
void expect_images(const Shape& shape);
void expect_tokens(const Shape& shape);

}  // namespace dltrain

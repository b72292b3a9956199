// A layer: its keys (described once, for parser, reference and schema) and how it emits ops. No
// layer writes a backward. One file a layer; the table is nn/registry.cpp. Layers that hold layers
// (nn/structure.cpp) are layers like others.
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

namespace dltrain {

struct Decoding;
struct Layer;

// Parallel streams that the batches continue (data of `sampling: streams`): sample r of the global
// batch belongs to stream r.
struct StreamInfo {
  int64_t rows = 0;   // streams, so samples of the global batch; 0: batches are not connected
  int64_t steps = 0;  // after so many all streams begin anew
};

// The context in which layers emit ops. One context serves one graph; evaluation has its own.
//
// Paths name parameters and nodes. A layer's path is that of the layer around it, and its own name;
// where it has none, its number in its list: "layers.2", "layer1.0.conv1". The name "." adds
// nothing: the layers inside are named, and counted, as if they stood in the list around.
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

  // The path of the layer that is being emitted: "layers.2".
  const std::string& path() const { return builder_.layer(); }

  // Emits layers one after the other on `x`; returns the output of the last, or `x` where there is
  // none. Unnamed ones are called "<path>.<list>.<index>". A mistake is reported at its place in
  // the file (ConfigError).
  ValueId emit_list(const std::vector<std::unique_ptr<Layer>>& layers, ValueId x,
                    std::string_view list = "");
  // Initial values of weights of two axes or more, where no layer has its own (may be null; must
  // outlive the context).
  void set_default_init(const InitializerConfig* init) { default_init_ = init; }
  // The same for the whole model, whose layers may name `fields`; the first layer
  // gets the first of them. Refuses inputs that no layer reads.
  using Inputs = std::vector<std::pair<std::string, ValueId>>;
  ValueId emit_model(const std::vector<std::unique_ptr<Layer>>& layers, const Inputs& fields,
                     const Place& model);
  // Emits x with another shape, and scale · x + shift.
  ValueId reshape(ValueId x, std::vector<int64_t> shape) {
    return builder_.emit1("reshape", {x}, {{"shape", std::move(shape)}});
  }
  ValueId scaled(ValueId x, double scale, double shift = 0) {
    return builder_.emit1("affine", {x}, {{"scale", scale}, {"shift", shift}});
  }
  // From now on parameters and buffers are constants, and all names begin with `name`.
  void make_constant(std::string name) { constant_ = std::move(name); }
  // The size of the vocabulary for layers without this key: model.vocab_size, or that of the data.
  // Throws Error(usage) if neither is known.
  int64_t vocabulary();
  void set_vocabulary(int64_t size) { vocabulary_ = size; }
  bool asked_vocabulary() const { return asked_vocabulary_; }
  // The number of outputs for the data: its classes, or the numbers of a target. Throws
  // Error(usage) if it is unknown.
  int64_t outputs() const;
  void set_outputs(int64_t outputs) { outputs_ = outputs; }
  // The output of the teacher for this micro-batch (nn/distillation.cpp); kNoValue without one.
  ValueId teacher_output() const { return teacher_output_; }
  void set_teacher_output(ValueId output) { teacher_output_ = output; }
  // Set if the model generates text (nn/decoding.h); nullptr: it gets complete texts. Must outlive
  // the context.
  Decoding* decoding() const { return decoding_; }
  void set_decoding(Decoding* decoding) { decoding_ = decoding; }
  // Runs `emit` as if in a layer `name` of the layer that is being emitted.
  ValueId emit_inside(std::string_view name, const std::function<ValueId()>& emit);
  // The same, with the parameters of what was emitted so under the name `first`.
  ValueId emit_copy(std::string_view first, std::string_view name,
                    const std::function<ValueId()>& emit);

  // A parameter "<path>.<name>", or with `share` that of the other layer. `memory` is its shape in
  // memory; `file` is given if files have another order of axes.
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer) {
    return add(Role::parameter, name, memory, initializer, {memory, {}});
  }
  ValueId parameter(const std::string& name, const Shape& memory, const Initializer& initializer,
                    FileLayout file) {
    return add(Role::parameter, name, memory, initializer, std::move(file));
  }
  // State that training changes without a gradient.
  ValueId buffer(const std::string& name, const Shape& memory, const Initializer& initializer) {
    return add(Role::buffer, name, memory, initializer, {memory, {}});
  }

  // State [samples, width] that the previous batch has stored under this name, zeros at the start
  // of the streams; no gradient flows into it. Throws Error(usage) if batches are not connected.
  ValueId carried(const std::string& name, int64_t samples, int64_t width);
  // Stores x [samples, width] for the next batch under the name of an earlier carried().
  void carry(const std::string& name, ValueId x);
  void set_streams(const StreamInfo& streams) { streams_ = streams; }

  // Adds a state update that runs once a step, after the gradient norm: op(step_state, inputs…).
  void defer_update(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
    updates_.push_back({path(), std::move(op), std::move(inputs), std::move(attributes)});
  }

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

  GraphBuilder& builder_;
  bool training_;
  bool noise_ = true;
  DType compute_;
  int64_t ghost_groups_;
  std::vector<ParameterInfo> parameters_;
  std::vector<DeferredUpdate> updates_;
  std::map<std::string, size_t, std::less<>> index_;  // of parameters_, by name
  std::map<std::string, Place, std::less<>> paths_;   // of the layers emitted so far
  std::map<std::string, ValueId> carried_;            // state of the streams, by name
  const InitializerConfig* default_init_ = nullptr;
  const Emission* emission_ = nullptr;  // of the innermost layer that is being emitted
  // Paths of the copies that are being emitted, the outermost first, and of what they copy.
  std::vector<std::pair<std::string, std::string>> copies_;
  bool spliced_ = false;  // it is called "."
  std::string constant_;  // see make_constant; empty: state is the model's own
  ValueId teacher_output_ = kNoValue;
  Decoding* decoding_ = nullptr;
  int64_t vocabulary_ = 0;         // 0: unknown
  bool asked_vocabulary_ = false;  // has a layer used it?
  int64_t outputs_ = 0;            // 0: unknown
  StreamInfo streams_ = {};
  List* list_ = nullptr;  // that it stands in
};

struct Layer : Chosen {
  // Keys that every layer has.
  std::optional<std::string> name;
  std::optional<std::vector<std::string>> inputs;  // of layers or data; absent: the one before
  std::optional<std::string> share;
  std::unique_ptr<InitializerConfig> weight_init, bias_init;

  virtual ~Layer() = default;
  void describe(Fields&) override {}
  void describe_common(Fields&) final;
  // Emits the layer on its inputs and returns its output. Throws Error(usage) when they do not fit.
  // A layer with one input overrides the second form, which the first calls.
  virtual ValueId emit_inputs(LayerContext& context, std::span<const ValueId> inputs) const;
  virtual ValueId emit(LayerContext& context, ValueId x) const;
};

// The registry, in table order.
const KindTable<Layer>& layer_table();

// Throws Error(usage) "expects a vector a sample, got [32, 8, 8, 1]; put a flatten layer before
// it".
void expect_vectors(const Shape& shape);
void expect_images(const Shape& shape);
void expect_tokens(const Shape& shape);

}  // namespace dltrain

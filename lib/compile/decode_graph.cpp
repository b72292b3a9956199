#include "compile/decode_graph.h"

#include <algorithm>

#include "base/error.h"
#include "compile/source_cut.h"
#include "graph/dependence.h"
#include "passes/autocast.h"
#include "passes/dead_code.h"
#include "passes/frozen_base.h"
#include "passes/fuse.h"
#include "passes/lower_recurrent.h"
#include "passes/narrow_parameters.h"
#include "passes/tf32.h"
#include "passes/token_axis.h"
#include "passes/update.h"

namespace dltrain {
namespace {

// Returns true for ops that can run after the selection of the last token instead of before it.
bool may_follow_choice(std::string_view op) {
  return op == "matmul" || op == "layer_norm" || op == "rms_norm";
}

// Reduces `output` [samples, tokens, …] to the last token: [samples, 1, …]. The selection is moved
// before as many ops as possible, so that the product with the vocabulary is computed for one token
// per sample. Dead-code elimination removes the replaced nodes.
ValueId choose_last(GraphBuilder& builder, const std::vector<int>& axes, ValueId output,
                    ValueId counts) {
  const std::vector<int> uses = builder.graph().count_uses();
  const std::vector<Node> nodes = builder.graph().nodes;
  std::vector<const Node*> later;  // the last one first
  ValueId x = output;
  while (true) {
    const int producer = builder.graph().value(x).producer;
    if (producer < 0 || uses[static_cast<size_t>(x)] != (x == output ? 0 : 1)) break;
    const Node& node = nodes[static_cast<size_t>(producer)];
    if (!may_follow_choice(node.op->name) || node.outputs[0] != x ||
        axes[static_cast<size_t>(node.inputs[0])] != 1) {
      break;
    }
    later.push_back(&node);
    x = node.inputs[0];
  }
  x = builder.emit1("last_token", {x, counts});
  for (auto node = later.rbegin(); node != later.rend(); ++node) {
    std::vector<ValueId> inputs = (*node)->inputs;
    inputs[0] = x;
    builder.set_layer((*node)->layer);
    x = builder.emit1((*node)->op->name, inputs, (*node)->attributes);
  }
  return x;
}

// Removes the role of state that no node reads, so that it takes no memory.
void drop_unread_state(Graph& graph) {
  const std::vector<int> uses = graph.count_uses();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    GraphValue& value = graph.values[i];
    if (uses[i] == 0 && value.producer < 0 && rules_of(value.role).persistent) {
      value.role = Role::activation;
    }
  }
}

void read_existing_averages(Graph& graph, const DecodeRequest& r) {
  if (!r.has_average) return;
  std::vector<ValueId> averaged;
  for (ValueId id : graph.with_role(Role::parameter)) {
    if (r.has_average(graph.value(id).name)) averaged.push_back(id);
  }
  if (!averaged.empty()) read_averages(graph, averaged);
}

int64_t check_output(const Shape& tokens, const Shape& output, int axis) {
  if (output.rank() == 3 && axis == 1 && output[0] == tokens[0] && output[1] == tokens[1]) {
    return output[2];
  }
  fail(ExitCode::usage,
       "the model gives {} for {} tokens; only one with logits for each token, [samples, tokens, "
       "vocabulary], can generate text",
       to_string(output), to_string(tokens));
}

// The model as its layers emit it for decoding, with its inputs.
struct Emitted {
  explicit Emitted(const DecodeRequest& r)
      : context(builder, /*training=*/false, r.compute, 1), request(r) {
    const auto input = [&](const std::string& name, const Shape& shape) {
      return builder.add_value(name, {shape, DType::i32}, Role::input);
    };
    LayerContext::Inputs fields;
    if (r.source) {
      source = input("input.source", {r.samples, r.source->length});
      fields.emplace_back("source", source);
      if (r.source->lengths) {
        source_lengths = input("input.source_lengths", {r.samples});
        fields.emplace_back("source_lengths", source_lengths);
      }
    }
    tokens = input("input." + r.input, {r.samples, r.tokens});
    fields.emplace_back(r.input, tokens);
    decoding = {.slots = r.slots,
                .capacity = r.capacity,
                .tokens = r.source ? tokens : kNoValue,
                .positions = input("positions", {r.samples}),
                .counts = input("counts", {r.samples}),
                .slot_ids = input("slots", {r.samples}),
                .trained = r.trained};
    context.set_decoding(&decoding);
    context.set_default_init(r.model.init.get());
    context.set_lora(r.model.adapters());
    context.set_vocabulary(r.model.vocab_size.value_or(r.vocabulary));
    output = context.emit_model(r.model.layers, fields, r.model.location);
    builder.set_layer("");
  }

  std::vector<ValueId> sources() const {
    std::vector<ValueId> out{source};
    if (source_lengths != kNoValue) out.push_back(source_lengths);
    return out;
  }
  SourceCut cut(const std::vector<ValueId>& sources) const {
    return {sources, tokens, decoding.counts, decoding.slot_ids, request.slots};
  }

  Graph graph;
  GraphBuilder builder{graph};
  LayerContext context;
  const DecodeRequest& request;
  Decoding decoding;
  ValueId source = kNoValue, source_lengths = kNoValue, tokens = kNoValue, output = kNoValue;
};

// Runs the passes after emission. `output`: kNoValue for a graph without output.
Graph finished(Emitted& model, ValueId output) {
  const DecodeRequest& r = model.request;
  Graph graph = std::move(model.graph);
  read_existing_averages(graph, r);
  std::vector<ValueId> outputs;
  if (output != kNoValue) outputs.push_back(output);
  graph = autocast(std::move(graph), r.precision, outputs);
  graph = lower_recurrent(std::move(graph), {}, false);
  mark_tf32(graph, r.precision);
  if (r.narrow_parameters) graph = narrow_parameters(std::move(graph));
  if (const LoraConfig* lora = r.model.adapters(); lora != nullptr && lora->changes_base()) {
    graph = keep_base(std::move(graph), model.context.parameters(), *lora, r.precision.low());
  }
  for (ValueId id : outputs) graph.value(id).role = Role::output;
  graph = fuse(eliminate_dead_code(std::move(graph)));
  drop_unread_state(graph);
  return graph;
}

}  // namespace

DecodeGraph build_decode_graph(const DecodeRequest& r) {
  Emitted model(r);
  DecodeGraph out;
  out.tokens = model.tokens;
  out.positions = model.decoding.positions;
  out.counts = model.decoding.counts;
  out.slots = model.decoding.slot_ids;
  out.source_lengths = model.source_lengths;
  out.output = model.output;
  if (r.source) {
    const auto sources = model.sources();
    const SourceCut cut = model.cut(sources);
    const bool in_order = r.tokens == 1 && r.samples == r.slots;
    read_from_slots(model.builder, values_of_source(model.graph, cut), cut, in_order);
  }
  const std::vector<int> axes = token_axes(model.graph, out.tokens);
  const Shape& logits = model.builder.spec(out.output).shape;
  out.vocabulary =
      check_output({r.samples, r.tokens}, logits, axes[static_cast<size_t>(out.output)]);
  out.max_positions = model.decoding.max_positions;
  out.keeps_tokens = model.decoding.keeps_tokens;
  if (r.tokens > 1) out.output = choose_last(model.builder, axes, out.output, out.counts);
  model.builder.set_layer("");
  out.graph = finished(model, out.output);
  if (r.source) out.graph.value(model.source).role = Role::activation;  // nothing reads it
  if (r.independent_rows) {
    for (Node& node : out.graph.nodes) {
      if (node.op->name == "matmul") node.attributes.set("independent_rows", true);
    }
  }
  verify_graph(out.graph);
  out.parameters = model.context.parameters();
  return out;
}

SourceGraph build_source_graph(const DecodeRequest& request) {
  DecodeRequest r = request;
  r.samples = r.tokens = 1;
  Emitted model(r);
  const auto sources = model.sources();
  const SourceCut cut = model.cut(sources);
  write_to_slots(model.builder, values_of_source(model.graph, cut), cut);
  // Nodes that depend on the text's own tokens belong to the decode graph.
  const std::vector<bool> text = reachable_from(model.graph, {&model.tokens, 1});
  std::erase_if(model.graph.nodes,
                [&](const Node& node) { return text[static_cast<size_t>(node.outputs[0])]; });
  model.graph.update_producers();
  SourceGraph out;
  out.source = model.source;
  out.source_lengths = model.source_lengths;
  out.counts = model.decoding.counts;
  out.slots = model.decoding.slot_ids;
  out.graph = finished(model, kNoValue);
  for (ValueId id : {model.tokens, model.decoding.positions}) {
    out.graph.value(id).role = Role::activation;  // nothing reads them
  }
  verify_graph(out.graph);
  out.parameters = model.context.parameters();
  return out;
}

}  // namespace dltrain

#include "compile/decode_graph.h"

#include <algorithm>

#include "base/error.h"
#include "passes/autocast.h"
#include "passes/dead_code.h"
#include "passes/fuse.h"
#include "passes/narrow_parameters.h"
#include "passes/token_axis.h"
#include "passes/update.h"

namespace dltrain {
namespace {

// Ops that may come after the choice of the last token instead of before it.
bool may_follow_choice(std::string_view op) {
  return op == "matmul" || op == "layer_norm" || op == "rms_norm";
}

// `output` [samples, tokens, …] of the last tokens alone: [samples, 1, …]. The choice is made as
// early as the ops that lead to the output allow, so that the product with the vocabulary is
// computed for one token a sample. What is computed in vain is dead code.
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
    x = builder.emit((*node)->op->name, inputs, (*node)->attributes)[0];
  }
  return x;
}

// State that no node reads takes no memory: without its role it is no state.
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
       "vocabulary], can continue texts",
       to_string(output), to_string(tokens));
}

}  // namespace

DecodeGraph build_decode_graph(const DecodeRequest& r) {
  DecodeGraph out;
  GraphBuilder builder(out.graph);
  LayerContext context(builder, /*training=*/false, r.compute, 1);
  const auto input = [&](const std::string& name, const Shape& shape) {
    return builder.add_value(name, {shape, DType::i32}, Role::input);
  };
  const Shape tokens{r.samples, r.tokens};
  out.tokens = input("input." + r.input, tokens);
  out.positions = input("positions", {r.samples});
  out.counts = input("counts", {r.samples});
  out.slots = input("slots", {r.samples});
  Decoding decoding{.slots = r.slots,
                    .capacity = r.capacity,
                    .positions = out.positions,
                    .counts = out.counts,
                    .slot_ids = out.slots,
                    .trained = r.trained};
  context.set_decoding(&decoding);
  context.set_default_init(r.model.init.get());
  context.set_vocabulary(r.model.vocab_size.value_or(r.vocabulary));
  out.output = context.emit_model(r.model.layers, {{r.input, out.tokens}}, r.model.place);
  const std::vector<int> axes = token_axes(out.graph, out.tokens);
  const Shape& logits = builder.spec(out.output).shape;
  out.vocabulary = check_output(tokens, logits, axes[static_cast<size_t>(out.output)]);
  out.max_positions = decoding.max_positions;
  out.keeps_tokens = decoding.keeps_tokens;
  if (r.tokens > 1) out.output = choose_last(builder, axes, out.output, out.counts);
  builder.set_layer("");
  read_existing_averages(out.graph, r);
  if (r.precision != DType::f32) {
    out.graph = autocast(std::move(out.graph), r.precision, {out.output});
  }
  if (r.narrow_parameters) out.graph = narrow_parameters(std::move(out.graph));
  out.graph.value(out.output).role = Role::output;
  out.graph = fuse(eliminate_dead_code(std::move(out.graph)));
  if (r.independent_rows) {
    for (Node& node : out.graph.nodes) {
      if (node.op->name == "matmul") node.attributes.set("independent_rows", true);
    }
  }
  drop_unread_state(out.graph);
  verify_graph(out.graph);
  out.parameters = context.parameters();
  return out;
}

}  // namespace dltrain

#include "passes/fp8.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "config/name_patterns.h"
#include "graph/builder.h"
#include "ops/rules.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Tensor cores take FP8 matrices whose sides are multiples of 16. Samples are not counted here, so
// that the layers with FP8 products do not depend on the micro-batch.
bool fits_tensor_cores(const Graph& graph, const Node& node) {
  const Shape& w = graph.value(node.inputs[1]).spec.shape;
  return w[0] % 16 == 0 && w[1] % 16 == 0;
}

// The same of the shards of all ranks, which must have like graphs.
bool shards_fit_tensor_cores(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.attributes.text(kFp8Operands) != "xw") continue;
    const GraphValue& w = graph.value(node.inputs[1]);
    const Cut* cut = w.shard && w.shard->cut ? &*w.shard->cut : nullptr;
    for (int rank = 0; rank < (cut != nullptr ? cut->ranks : 1); ++rank) {
      const Shape own = cut != nullptr ? cut->local(w.shard->whole.shape, rank) : w.spec.shape;
      if (own[0] % 16 != 0 || own[1] % 16 != 0) return false;
    }
  }
  return true;
}

bool is_linear_product(const Graph& graph, const Node& node) {
  if (node.op->name != "matmul" || node.attributes.boolean("transpose_a") ||
      node.attributes.boolean("full_precision")) {
    return false;
  }
  const Role role = graph.value(graph.storage(node.inputs[1])).role;
  const DType dtype = graph.value(node.inputs[0]).spec.dtype;
  return (dtype == DType::bf16 && role == Role::low_precision) ||
         (dtype == DType::f64 && role == Role::parameter);
}

class Rounding {
 public:
  Rounding(Graph& graph, const Fp8Config& fp8, const Mesh& mesh, bool codes)
      : graph_(graph),
        builder_(graph),
        fp8_(fp8),
        codes_(codes && shards_fit_tensor_cores(graph)),
        over_(mesh.over(kParts)),
        sums_(mesh.size(kParts) > 1) {}

  Fp8State run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      const std::string operands = node.attributes.text(kFp8Operands);
      if (!operands.empty()) {
        builder_.set_place(node);
        // The sum is along the columns of the first operand and the rows of the second.
        const bool along_columns[]{!node.attributes.boolean("transpose_a"),
                                   node.attributes.boolean("transpose_b")};
        if (codes_) {
          multiply_codes(node, operands, along_columns);
        } else {
          for (size_t i = 0; i < operands.size(); ++i) {
            node.inputs[i] = rounded(node.inputs[i], operands[i], along_columns[i]);
          }
          node.attributes.erase(kFp8Operands);
        }
      }
      graph_.nodes.push_back(std::move(node));
    }
    graph_.update_producers();
    verify_pass(graph_);
    return std::move(state_);
  }

 private:
  // Ranks along these axes hold parts of a micro-batch's tensors, or of weights.
  static constexpr const char* kParts = "context,context_expert,tensor";

  // The block that has a scale of its own, with the sum along its columns; empty: the tensor.
  std::vector<int64_t> block(char operand) const {
    const int64_t size = fp8_.block_size();
    if (size == 0) return {};
    return {operand == 'w' && fp8_.recipe == Fp8Recipe::blockwise ? size : 1, size};
  }

  using Tensor = std::tuple<ValueId, int64_t, std::string>;  // storage, columns, format
  Tensor tensor_of(ValueId x, char operand) const {
    return {graph_.storage(x), graph_.value(x).spec.shape[-1], format(operand)};
  }
  std::string format(char operand) const {
    return operand == 'g' && !fp8_.has_blocks() ? "e5m2" : "e4m3";
  }

  ValueId rounded(ValueId x, char operand, bool along_columns) {
    Attributes attributes{{"format", format(operand)}};
    std::vector<int64_t> own = block(operand);
    if (!along_columns) std::ranges::reverse(own);
    if (!own.empty()) attributes.set("block", own);
    const Shape shape = builder_.spec(x).shape;
    const auto [found, first] = rounded_.try_emplace({tensor_of(x, operand), own}, kNoValue);
    if (first) {
      std::vector<ValueId> inputs{x};
      if (own.empty()) inputs.push_back(counts_of(x, operand));
      if (builder_.phase() == Phase::forward) attributes.set(kAlwaysAgain, true);
      const std::vector<ValueId> made = builder_.emit("fp8_round", inputs, attributes);
      found->second = made[0];
      add_lost(made[1]);
    }
    return builder_.reshape(found->second, shape);
  }

  // The counts of a tensor are those of all its roundings.
  ValueId counts_of(ValueId x, char operand) {
    const auto [found, first] = counts_.try_emplace(tensor_of(x, operand), kNoValue);
    if (first) found->second = scale(x, operand, {{"format", format(operand)}});
    return found->second;
  }

  // Makes a matmul a product of codes.
  void multiply_codes(Node& node, const std::string& operands,
                      std::span<const bool, 2> along_columns) {
    const Codes a = codes(node.inputs[0], operands[0], along_columns[0]),
                b = codes(node.inputs[1], operands[1], along_columns[1]);
    const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    const DType dtype = graph_.value(node.outputs[0]).spec.dtype;
    node.op = find_op("fp8_matmul");
    node.inputs = {a.codes, b.codes, a.scales, b.scales, bias};
    node.attributes = {{"format_a", format(operands[0])},
                       {"format_b", format(operands[1])},
                       {"output_dtype", std::string(dtype_name(dtype))}};
    if (!fp8_.has_blocks()) return;
    node.attributes.set("block_a", block(operands[0]));
    node.attributes.set("block_b", block(operands[1]));
  }

  struct Codes {
    ValueId codes = kNoValue, scales = kNoValue;
  };
  // Returns codes of x with the sum along their last axis.
  Codes codes(ValueId x, char operand, bool along_columns) {
    const Tensor tensor = tensor_of(x, operand);
    // Codes of both directions have the same losses if blocks are square, or if the tensor has one
    // scale; these losses are added once.
    const std::vector<int64_t> own = block(operand);
    const bool counted =
        (own.empty() || own[0] == own[1]) && coded_.contains({tensor, !along_columns});
    Codes& found = coded_[{tensor, along_columns}];
    if (found.codes == kNoValue) {
      std::vector<ValueId> inputs{x};
      Attributes attributes{{"format", format(operand)}, {"transpose", !along_columns}};
      if (own.empty()) {
        inputs.push_back(counts_of(x, operand));
      } else {
        attributes.set("block", own);
      }
      const auto made = builder_.emit("fp8_codes", inputs, attributes);
      found = {made[0], made[1]};
      if (!counted) add_lost(made[2]);
    }
    if (!along_columns) return found;
    return {builder_.reshape(found.codes, builder_.spec(x).shape), found.scales};
  }

  // Adds what a rounding has lost to the metric of the layer.
  void add_lost(ValueId lost) {
    const auto [sum, first] = lost_.try_emplace(builder_.layer(), kNoValue);
    if (first) {
      state_.metrics.push_back("metric.fp8." + builder_.layer());
      sum->second = builder_.accumulate(lost, state_.metrics.back(), Role::metric);
    } else {
      sum->second = builder_.accumulate_onto(lost, sum->second);
    }
  }

  // Returns the counts whose scale x is rounded with.
  ValueId scale(ValueId x, char operand, const Attributes& format) {
    ValueId counts = builder_.emit1("fp8_counts", {x}, format);
    if (sums_) counts = builder_.emit1("all_reduce", {counts}, {{kOver, over_}});
    if (fp8_.recipe == Fp8Recipe::current) return counts;
    const std::string of = name(operand);
    const TensorSpec spec = builder_.spec(counts);
    const ValueId sum = builder_.accumulate(counts, state_name("fp8_amax", of), Role::statistic);
    const ValueId history = builder_.add_value(state_name("fp8_history", of),
                                               {Shape{fp8_.history}, spec.dtype}, Role::moment);
    const ValueId scale = builder_.add_value(state_name("fp8_scale", of), spec, Role::moment);
    state_.updates.push_back({builder_.layer(), "fp8_scale_update", {sum, history, scale}, {}});
    return scale;
  }

  // A name for the state of an operand of the layer.
  std::string name(char operand) {
    const char* kind = operand == 'x' ? "input" : operand == 'w' ? "weight" : "gradient";
    std::string out = builder_.layer() + "." + kind;
    const int before = names_[out]++;
    return before == 0 ? out : out + "." + std::to_string(before);
  }

  Graph& graph_;
  GraphBuilder builder_;
  const Fp8Config& fp8_;
  bool codes_;
  std::string over_;
  bool sums_;
  std::map<std::pair<Tensor, std::vector<int64_t>>, ValueId> rounded_;  // by tensor and block
  std::map<Tensor, ValueId> counts_;
  std::map<std::pair<Tensor, bool>, Codes> coded_;  // with the sum along columns, or rows
  std::map<std::string, int> names_;
  std::map<std::string, ValueId> lost_;  // sums, by layer
  Fp8State state_;
};

}  // namespace

void mark_fp8(Graph& graph, const Fp8Config& fp8) {
  std::vector<Node*> linear;
  std::vector<std::string> layers;
  for (Node& node : graph.nodes) {
    if (!is_linear_product(graph, node)) continue;
    linear.push_back(&node);
    if (std::ranges::find(layers, node.layer) == layers.end()) layers.push_back(node.layer);
  }
  Diagnostics diagnostics;
  check_patterns(diagnostics, fp8, "except", fp8.except, layers, "linear layer");
  int marked = 0;
  for (Node* node : linear) {
    const bool last = node->layer == layers.back();
    if (last || selects(fp8.except, node->layer) || !fits_tensor_cores(graph, *node)) continue;
    node->attributes.set(kFp8Operands, std::string("xw"));
    ++marked;
  }
  if (marked == 0) {
    diagnostics.add(fp8, "recipe",
                    "no linear layer computes in FP8: they are all the model's last one, those of "
                    "except, or have inputs or outputs whose number 16 does not divide");
  }
  diagnostics.throw_if_any();
}

Fp8State round_fp8(Graph& graph, const Fp8Config& fp8, const Mesh& mesh, bool codes) {
  return Rounding(graph, fp8, mesh, codes).run();
}

}  // namespace dltrain

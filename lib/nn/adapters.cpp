// Adds the adapters of model.lora (nn/lora.h) to the products that layers have emitted. It works on
// the emitted nodes and not in the layers: so one rule serves every layer that multiplies by a
// weight (linear, lm_head, multi_head_attention with its packed q, k and v, shared experts), a
// weight that layers share gets one adapter, and the head is known, whatever layer it is.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "config/name_patterns.h"
#include "config/suggest.h"
#include "nn/layer.h"
#include "nn/lora.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// A product y = x·Wᵀ (+ b) by a weight of the model.
struct LinearProduct {
  size_t node = 0;
  std::string module;  // the path of its adapter, without what precedes the model's names
  bool head = false;
};

// Returns the node that computes `output` but for functions of each element; −1: none.
int node_of_head(const Graph& graph, ValueId output) {
  int producer = graph.value(output).producer;
  while (producer >= 0) {
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    if (node.op->name == "matmul") return producer;
    if (!node.op->elementwise && node.op->name != "reshape") return -1;
    producer = graph.value(node.inputs[0]).producer;
  }
  return -1;
}

class LinearProducts {
 public:
  LinearProducts(const Graph& graph, size_t first_node, ValueId output,
                 const std::vector<ParameterInfo>& parameters, const std::string& prefix) {
    for (const ParameterInfo& info : parameters) {
      const std::string_view module = module_of_weight(info.name);
      if (!module.empty()) weights_[graph.find(info.name)] = &info;
    }
    const int head = node_of_head(graph, output);
    for (size_t i = first_node; i < graph.nodes.size(); ++i) {
      const std::string module = module_of(graph.nodes[i]);
      if (module.empty()) continue;
      found_.push_back({i, prefix.empty() ? module : module.substr(prefix.size() + 1),
                        static_cast<int>(i) == head});
    }
  }

  // Returns the products that get adapters. Throws for patterns that match none.
  std::vector<LinearProduct> chosen(const LoraConfig& lora) const {
    std::vector<std::string> names;
    for (const LinearProduct& product : found_) {
      std::ranges::move(names_of(product), std::back_inserter(names));
    }
    Diagnostics diagnostics;
    check_patterns(diagnostics, lora, "match", lora.match, names, "linear layer");
    diagnostics.throw_if_any();
    std::vector<LinearProduct> out;
    for (const LinearProduct& product : found_) {
      const bool wanted =
          lora.match.empty() ? !product.head : selects_one_of(lora.match, names_of(product));
      if (wanted) out.push_back(product);
    }
    if (out.empty()) {
      fail_at(lora, "match", "{}",
              lora.match.empty() ? "the model has no linear layer besides its head"
                                 : "no linear layer is selected");
    }
    return out;
  }

 private:
  static std::vector<std::string> names_of(const LinearProduct& product) {
    std::vector<std::string> out = ends_of(product.module);
    out.push_back(product.module + ".weight");
    return out;
  }

  // Returns "" for a node that is no product by a weight. A weight that belongs to another layer
  // (that of a tied embedding) gets an adapter in this one.
  std::string module_of(const Node& node) {
    if (node.op->name != "matmul" || !node.attributes.boolean("transpose_b") ||
        node.attributes.boolean("transpose_a") || node.attributes.boolean("full_precision")) {
      return "";
    }
    const auto weight = weights_.find(node.inputs[1]);
    if (weight == weights_.end()) return "";
    const auto [at, first] = modules_.try_emplace(node.inputs[1], "");
    if (first) {
      const std::string& name = weight->second->name;
      at->second = name.starts_with(node.layer + ".") ? module_of_weight(name) : node.layer;
    }
    return at->second;
  }

  std::map<ValueId, const ParameterInfo*> weights_;
  std::map<ValueId, std::string> modules_;  // of the weights that products read
  std::vector<LinearProduct> found_;
};

bool only_products_read(const Graph& graph, const std::vector<int>& readers, ValueId weight) {
  return std::ranges::all_of(readers, [&](int at) {
    const Node& node = graph.nodes[static_cast<size_t>(at)];
    return node.op->name == "matmul" && node.inputs[0] != weight && node.inputs[1] == weight;
  });
}

// Emits base + (g − 1)·plain + g·added with g = m/norms, which is the base where g is 1. `plain`:
// x·Wᵀ.
void emit_dora(GraphBuilder& b, ValueId base, ValueId plain, ValueId added, ValueId norms,
               ValueId m) {
  const ValueId g = b.emit1("div", {m, norms});
  const ValueId longer = b.emit1("add", {base, b.emit1("mul", {plain, b.scaled(g, 1, -1)})});
  b.emit1("add", {longer, b.emit1("mul", {added, g})});
}

}  // namespace

// Emits the adapter of `product`, whose result keeps its id. Products that share a weight share the
// adapter.
void LayerContext::adapt(const LoraConfig& lora, Node product, const std::string& module) {
  Graph& graph = builder_.graph();
  const size_t first = graph.nodes.size();
  const ValueId x = product.inputs[0], w = product.inputs[1], y = product.outputs[0];
  const ValueId bias = product.inputs.size() == 3 ? product.inputs[2] : kNoValue;
  const int64_t out = builder_.spec(w).shape[0], in = builder_.spec(w).shape[1];
  if (lora.variant == LoraVariant::dora &&
      module_of_weight(graph.value(w).name) != join_path(constant_, module)) {
    fail_at(lora, "variant", "dora: {} has the weight of another layer; leave it out of match",
            module);
  }
  const auto parameter = [&](std::string_view suffix, const Shape& shape, Initializer init) {
    const std::string name = join_path(constant_, module) + std::string(suffix);
    const auto [at, is_new] = index_.emplace(name, parameters_.size());
    if (!is_new) return graph.find(name);
    parameters_.push_back({.name = name,
                           .spec = {shape, accumulation_dtype(compute_)},
                           .role = constant_.empty() ? Role::parameter : Role::constant,
                           .initializer = init,
                           .file = {shape, {}},
                           .adaptation = Adaptation::adapter});
    return builder_.add_value(name, parameters_.back().spec, parameters_.back().role);
  };
  const ValueId a = parameter(kLoraA, {lora.rank, in}, Initializer::uniform_for(in));
  const ValueId b = parameter(kLoraB, {out, lora.rank}, Initializer::zeros());
  builder_.set_layer(product.layer);
  const auto times = [&](ValueId rows, ValueId matrix) {
    return builder_.emit1("matmul", {rows, matrix}, {{"transpose_b", true}});
  };
  const int block = product.block;
  const ValueId base = builder_.add_value({}, builder_.spec(y), Role::activation);
  product.outputs[0] = base;
  graph.nodes.push_back(std::move(product));
  const ValueId dropped =
      with_dropout(x, lora.dropout, builder_.layer() + "." + module + ".lora_dropout");
  // The factor is applied where rows are shortest.
  const ValueId added = times(scaled(times(dropped, a), lora.scale()), b);
  if (lora.variant != LoraVariant::dora) {
    builder_.emit1("add", {base, added});
  } else {
    const ValueId m = parameter(kLoraMagnitude, {out}, Initializer::zeros());
    const ValueId plain = dropped != x       ? times(dropped, w)
                          : bias != kNoValue ? builder_.emit1("sub", {base, bias})
                                             : base;
    const ValueId change = builder_.emit1("matmul", {b, a});
    emit_dora(builder_, base, plain, added,
              builder_.emit1("row_norms", {w, change}, {{"scale", lora.scale()}}), m);
  }
  graph.nodes.back().outputs[0] = y;
  for (size_t i = first; i < graph.nodes.size(); ++i) graph.nodes[i].block = block;
}

void LayerContext::add_adapters(const LoraConfig& lora, size_t first_node, ValueId output) {
  Graph& graph = builder_.graph();
  std::vector<std::string> names;
  for (const ParameterInfo& info : parameters_) {
    if (info.role == Role::buffer) continue;
    std::ranges::move(ends_of(info.name.substr(prefix_length())), std::back_inserter(names));
  }
  Diagnostics diagnostics;
  check_patterns(diagnostics, lora, "also_train", lora.also_train, names, "parameter");
  diagnostics.throw_if_any();
  const std::vector<LinearProduct> chosen =
      LinearProducts(graph, first_node, output, parameters_, constant_).chosen(lora);
  for (ParameterInfo& info : parameters_) {
    const bool learns = selects_one_of(lora.also_train, ends_of(info.name.substr(prefix_length())));
    if (info.role == Role::parameter && !learns) info.adaptation = Adaptation::frozen;
  }
  std::set<ValueId> adapted;
  for (const LinearProduct& product : chosen) {
    adapted.insert(graph.nodes[product.node].inputs[1]);
  }
  const std::string layer = builder_.layer();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  auto next = chosen.begin();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (next == chosen.end() || next->node != i) {
      graph.nodes.push_back(std::move(nodes[i]));
    } else {
      adapt(lora, std::move(nodes[i]), next++->module);
    }
  }
  builder_.set_layer(layer);
  graph.update_producers();
  if (lora.codes().format == WeightFormat::wide || !constant_.empty()) return;
  const std::vector<std::vector<int>> readers = graph.readers();
  bool any = false;
  for (ParameterInfo& info : parameters_) {
    const ValueId id = graph.find(info.name);
    if (info.adaptation != Adaptation::frozen || !adapted.contains(id)) continue;
    if (!only_products_read(graph, readers[static_cast<size_t>(id)], id)) continue;
    info.codes = lora.codes();
    any = true;
  }
  if (!any) {
    fail_at(
        lora, "base",
        "int8 and nf4 keep weights that only linear layers with an adapter read, and here there "
        "are none");
  }
}

}  // namespace dltrain

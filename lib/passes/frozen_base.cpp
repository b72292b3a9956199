#include "passes/frozen_base.h"

#include <map>
#include <set>
#include <utility>

#include "graph/builder.h"
#include "passes/narrow_parameters.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// The constants of a weight in codes, as inputs and attributes of dequantize.
struct CodedWeight {
  std::vector<ValueId> inputs;
  Attributes attributes;
};

CodedWeight add_codes(GraphBuilder& builder, const ParameterInfo& info) {
  const int64_t rows = info.spec.shape[0], columns = info.spec.shape[1];
  CodedWeight out;
  for (const CodedPart& part : coded_parts(info.codes, rows, columns)) {
    out.inputs.push_back(
        builder.add_value(state_name(part.kind, info.name), part.spec, Role::constant));
  }
  out.attributes.set("format", info.codes.format == WeightFormat::int8 ? "int8" : "nf4");
  out.attributes.set("rows", rows);
  out.attributes.set("columns", columns);
  return out;
}

// Emits a node that expands the weight for `reader`, and returns its result.
ValueId expand(GraphBuilder& builder, const CodedWeight& weight, DType dtype, const Node& reader) {
  Attributes attributes = weight.attributes;
  attributes.set("output_dtype", std::string(dtype_name(dtype)));
  // Recomputation keeps no result of the forward.
  if (reader.phase == Phase::forward) attributes.set(kAlwaysAgain, true);
  builder.set_place(reader);
  return builder.emit1("dequantize", weight.inputs, std::move(attributes));
}

void replace_by_codes(Graph& graph, const std::vector<ParameterInfo>& parameters) {
  GraphBuilder builder(graph);
  std::map<ValueId, CodedWeight> coded;  // by the weight and its low-precision copy
  for (const ParameterInfo& info : parameters) {
    if (info.codes.format == WeightFormat::wide) continue;
    const ValueId weight = graph.find(info.name);
    if (weight == kNoValue) continue;
    coded[weight] = add_codes(builder, info);
    for (const ValueId copy : graph.with_role(Role::low_precision)) {
      if (graph.value(copy).of == weight) coded[copy] = coded[weight];
    }
  }
  for (const auto& [id, weight] : coded) {
    graph.value(id) = {.spec = graph.value(id).spec};
  }
  for (Node& node : std::exchange(graph.nodes, {})) {
    for (ValueId& id : node.inputs) {
      if (const auto at = coded.find(id); at != coded.end()) {
        id = expand(builder, at->second, graph.value(id).spec.dtype, node);
      }
    }
    graph.nodes.push_back(std::move(node));
  }
  graph.update_producers();
}

}  // namespace

Graph keep_base(Graph graph, const std::vector<ParameterInfo>& parameters, const LoraConfig& lora,
                DType low) {
  const std::set<std::string> frozen = frozen_parameters(parameters);
  if (low == DType::bf16 && lora.base != LoraBase::f32) {
    graph = narrow_parameters(std::move(graph), &frozen);
  }
  replace_by_codes(graph, parameters);
  if (!lora.saves_base()) {
    for (GraphValue& value : graph.values) {
      if (value.role != Role::parameter) continue;
      const ValueId of = value.storage_of;
      if (frozen.contains(of == kNoValue ? value.name : graph.value(graph.storage(of)).name)) {
        value.role = Role::constant;
      }
    }
  }
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain

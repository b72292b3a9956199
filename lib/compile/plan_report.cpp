#include "compile/plan_report.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>

#include <fmt/format.h>

namespace dltrain {
namespace {

// Returns the number with which a path goes on after its enclosing layer: 3 of "layers.3.1" in
// "layers"; −1 if it is none.
int sibling_number(const std::string& layer, const std::string& around) {
  int number = -1;
  const size_t begin = std::min(around.size() + 1, layer.size());
  std::from_chars(layer.data() + begin, layer.data() + layer.size(), number);
  return number;
}

// Rows are in the order of the forward. A layer whose forward is fused away is inserted after the
// layers with smaller numbers in its nearest enclosing layer.
LayerCost& layer_row(PlanReport& report, const std::string& layer, Phase phase) {
  auto& rows = report.layers;
  const auto at = std::ranges::find(rows, layer, &LayerCost::layer);
  if (at != rows.end()) return *at;
  for (std::string around = phase == Phase::forward ? "" : layer; !around.empty();) {
    const size_t dot = around.rfind('.');
    around = dot == std::string::npos ? "" : around.substr(0, dot);
    const auto is_within = [&](const LayerCost& row) {
      return !around.empty() && (row.layer == around || row.layer.starts_with(around + "."));
    };
    const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const LayerCost& row) {
      return is_within(row) && sibling_number(row.layer, around) <= sibling_number(layer, around);
    });
    if (last != rows.rend()) return *rows.insert(last.base(), {.layer = layer});
    const auto first = std::ranges::find_if(rows, is_within);
    if (first != rows.end()) return *rows.insert(first, {.layer = layer});
  }
  rows.push_back({.layer = layer});
  return rows.back();
}

// Returns the parameter's name if the value is a parameter, its low-precision copy or a gathered
// parameter (passes/zero.h); otherwise "".
std::string parameter_of(const Graph& graph, const GraphValue& value) {
  if (value.role == Role::parameter || value.role == Role::low_precision) {
    if (value.storage_of != kNoValue) return "";
    return value.of == kNoValue ? value.name : graph.value(value.of).name;
  }
  if (value.role != Role::activation || value.name.empty()) return "";
  const GraphValue& state = graph.value(graph.find(value.name));
  return &state == &value ? "" : parameter_of(graph, state);
}

void add_node(PlanReport& report, std::set<std::string>& counted, const Graph& graph,
              const Node& node, int64_t micro_steps) {
  const SpecList inputs = graph.input_specs(node), outputs = graph.output_specs(node);
  const Cost cost = op_cost(*node.op, inputs, outputs, node.attributes);
  const double runs =
      node.phase == Phase::update || node.once_per_step ? 1.0 : static_cast<double>(micro_steps);
  report.flops_per_step += runs * cost.flops;
  report.bytes_per_step += runs * cost.bytes;
  if (node.phase == Phase::update) return;
  LayerCost& row = layer_row(report, node.layer.empty() ? "model" : node.layer, node.phase);
  if (node.phase == Phase::forward) {
    row.forward_flops += cost.flops;
    for (ValueId id : node.outputs) {
      const GraphValue& value = graph.value(id);
      if (value.role == Role::activation && value.storage_of == kNoValue) {
        row.activation_bytes += value.spec.bytes();
      }
    }
  } else {
    row.backward_flops += cost.flops;
  }
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    const std::string parameter = parameter_of(graph, graph.value(id));
    if (parameter.empty() || !counted.insert(parameter).second) continue;
    row.parameters += graph.value(id).spec.shape.elements();
  }
}

// "h.3.mlp.1" and "h.4.mlp.1" together are "h.*.mlp.1".
std::string alike(const std::string& layer) {
  std::string out;
  for (size_t i = 0; i <= layer.size(); ++i) {
    const size_t end = std::min(layer.find('.', i), layer.size());
    const std::string part = layer.substr(i, end - i);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    out += (out.empty() ? "" : ".") + (number && !out.empty() ? "*" : part);
    i = end;
  }
  return out;
}

// "h.3.mlp.1" is ".mlp.1" of number 3 in "h"; a name without such a number is its own stem.
struct BlockName {
  std::string stem, rest;
  int64_t number = -1;
};

BlockName block_name(const std::string& layer) {
  for (size_t dot = layer.find('.'); dot != std::string::npos; dot = layer.find('.', dot + 1)) {
    const size_t end = std::min(layer.find('.', dot + 1), layer.size());
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(layer.data() + dot + 1, layer.data() + end, number);
    if (error == std::errc() && stop == layer.data() + end) {
      return {layer.substr(0, dot), layer.substr(end), number};
    }
  }
  return {layer, "", -1};
}

// Adjacent rows with the same block number.
struct Block {
  BlockName name;
  std::vector<LayerCost> rows = {};
};

bool are_equal(const Block& a, const Block& b) {
  const bool next = a.name.number >= 0 && a.name.stem == b.name.stem && a.rows.size() > 1;
  return next && std::ranges::equal(a.rows, b.rows, [](const LayerCost& x, const LayerCost& y) {
           return block_name(x.layer).rest == block_name(y.layer).rest &&
                  x.parameters == y.parameters && x.activation_bytes == y.activation_bytes &&
                  x.forward_flops == y.forward_flops;
         });
}

MemoryPeak peak_of(const Program& program) {
  const Graph& graph = program.graph();
  const Program::PeakMemory peak = program.peak_memory();
  MemoryPeak out;
  if (peak.node < 0) return out;
  const Node& at = graph.nodes[static_cast<size_t>(peak.node)];
  out.bytes = peak.bytes;
  out.op = at.op->name;
  out.layer = at.layer;
  out.phase = phase_name(at.phase);
  const auto add = [&](const std::string& what, size_t bytes) {
    const auto row = std::ranges::find(out.live, what, &MemoryPeak::LiveValue::what);
    if (row != out.live.end()) {
      row->bytes += bytes;
    } else {
      out.live.push_back({what, bytes});
    }
  };
  for (const Program::PeakMemory::LiveValue& live : peak.live) {
    if (live.gradient) {
      add("gradients of parameters", live.bytes);
    } else if (live.workspace) {
      add("work of that op", live.bytes);
    } else if (live.node < 0) {
      add("inputs", live.bytes);
    } else {
      const Node& node = graph.nodes[static_cast<size_t>(live.node)];
      add(fmt::format("{} of {}", node.op->name,
                      node.layer.empty() ? "the model" : alike(node.layer)),
          live.bytes);
    }
  }
  std::ranges::stable_sort(out.live, std::greater{}, &MemoryPeak::LiveValue::bytes);
  return out;
}

}  // namespace

std::vector<LayerCost> fold_equal_blocks(const std::vector<LayerCost>& layers) {
  std::vector<Block> blocks;
  for (const LayerCost& row : layers) {
    const BlockName name = block_name(row.layer);
    const bool same = !blocks.empty() && name.number >= 0 && blocks.back().name.stem == name.stem &&
                      blocks.back().name.number == name.number;
    if (!same) blocks.push_back({name});
    blocks.back().rows.push_back(row);
  }
  std::vector<LayerCost> out;
  for (size_t i = 0; i < blocks.size();) {
    size_t end = i + 1;
    const auto follows = [&](size_t k) {
      return blocks[k].name.number == blocks[k - 1].name.number + 1 &&
             are_equal(blocks[i], blocks[k]);
    };
    while (end < blocks.size() && follows(end)) ++end;
    for (size_t r = 0; r < blocks[i].rows.size(); ++r) {
      LayerCost row = blocks[i].rows[r];
      for (size_t k = i + 1; k < end; ++k) {
        const LayerCost& other = blocks[k].rows[r];
        row.copies += 1;
        row.parameters += other.parameters;
        row.activation_bytes += other.activation_bytes;
        row.forward_flops += other.forward_flops;
        row.backward_flops += other.backward_flops;
      }
      if (row.copies > 1) {
        const BlockName name = block_name(row.layer);
        row.layer = fmt::format("{}.{}-{}{}", name.stem, name.number, blocks[end - 1].name.number,
                                name.rest);
      }
      out.push_back(std::move(row));
    }
    i = end;
  }
  return out;
}

PlanReport make_plan_report(const Program& program, const StateLayout& layout, size_t work_bytes,
                            int64_t micro_steps, const RankTopology& topology) {
  PlanReport report;
  report.traffic = step_traffic(program.graph(), micro_steps, topology);
  report.state_total = layout.bytes();
  size_t gaps = report.state_total;
  for (const RoleRules& rules : role_table()) {
    if (const size_t bytes = layout.bytes(rules.role)) {
      report.state_bytes.emplace_back(rules.name, bytes);
      gaps -= bytes;
    }
  }
  if (gaps > 0) report.state_bytes.emplace_back("alignment", gaps);
  if (layout.bytes(Role::gradient) == 0) {
    for (ValueId id : program.graph().with_role(Role::gradient)) {
      report.gradient_bytes += program.graph().value(id).spec.bytes();
    }
  }
  report.work_bytes = work_bytes;
  report.work_lower_bound = program.work_lower_bound();
  report.workspace_bytes = program.workspace_bytes();
  report.peak = peak_of(program);
  std::set<std::string> counted;
  for (const Node& node : program.graph().nodes) {
    add_node(report, counted, program.graph(), node, micro_steps);
  }
  std::erase_if(report.layers, [](const LayerCost& row) {
    return row.parameters == 0 && row.activation_bytes == 0 && row.forward_flops == 0 &&
           row.backward_flops == 0;
  });
  for (Phase phase : {Phase::forward, Phase::backward, Phase::weights, Phase::update}) {
    for (int chunk = 0; chunk < program.chunks(); ++chunk) {
      report.kernel_calls += program.segment(phase, MicroStep::only, chunk).size();
    }
  }
  return report;
}

}  // namespace dltrain

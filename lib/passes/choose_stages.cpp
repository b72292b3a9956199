// The layers with which the stages of a pipeline begin.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "passes/stage_cut.h"

namespace dltrain {
namespace {

// Seconds; only their ratios matter, and all ranks must use the same.
struct Rates {
  double flop, byte, sent_byte;
};
constexpr Rates kCpu{.flop = 1e-12, .byte = 1e-11, .sent_byte = 1e-10};
constexpr Rates kGpu{.flop = 1e-15, .byte = 5e-13, .sent_byte = 1e-11};
// The backward of a layer takes about twice as long as its forward.
constexpr double kSteps = 3, kDirections = 2;

bool is_activation(const Graph& graph, ValueId id) {
  const GraphValue& value = graph.value(graph.storage(id));
  return value.role == Role::activation && value.producer >= 0;
}

std::set<std::string> layers_with_parameters(const Graph& graph) {
  std::set<std::string> out;
  for (const Node& node : graph.nodes) {
    const bool reads = std::ranges::any_of(node.inputs, [&](ValueId id) {
      return id != kNoValue && graph.value(graph.storage(id)).role == Role::parameter;
    });
    if (reads) out.insert(node.layer);
  }
  return out;
}

// A place between two nodes where a stage can begin.
struct Border {
  size_t node = 0;     // the first one of the stage
  double sending = 0;  // seconds for the values that cross it
  double before = 0;   // seconds of the nodes before it
};

// Stages begin with layers that have parameters, so that activation functions stay with the
// products before them.
std::vector<Border> find_borders(const Graph& graph, const Rates& rates) {
  std::vector<size_t> last_reader(graph.values.size(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) last_reader[static_cast<size_t>(id)] = i;
    }
  }
  const std::set<std::string> with_parameters = layers_with_parameters(graph);
  std::vector<Border> out;
  std::set<std::string> seen;
  double before = 0;
  bool parameters_before = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool has_parameters = with_parameters.contains(node.layer);
    if (seen.insert(node.layer).second && has_parameters && parameters_before) {
      out.push_back({.node = i, .before = before});
    }
    parameters_before = parameters_before || has_parameters;
    const Cost cost = graph.cost(node);
    before += kSteps * (rates.flop * cost.flops + rates.byte * cost.bytes);
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const auto id = static_cast<ValueId>(v);
    if (graph.value(id).producer < 0 || !is_activation(graph, id)) continue;
    const auto producer = static_cast<size_t>(graph.value(id).producer);
    auto border = std::ranges::upper_bound(out, producer, {}, &Border::node);
    for (; border != out.end() && border->node <= last_reader[v]; ++border) {
      border->sending +=
          kDirections * rates.sent_byte * static_cast<double>(graph.value(id).spec.bytes());
    }
  }
  out.push_back({.node = graph.nodes.size(), .before = before});
  return out;
}

std::string show_specs(const SpecList& specs) {
  std::string out;
  for (const TensorSpec& spec : specs) out += to_string(spec) + " ";
  return out;
}

}  // namespace

std::vector<std::string> choose_stages(const Graph& forward, int stages, bool on_gpu) {
  const std::vector<Border> borders =
      find_borders(forward, on_gpu ? kGpu : kCpu);  // the last one is the end
  const size_t count = static_cast<size_t>(stages), end = borders.size() - 1;
  if (end + 1 < count) {
    fail(ExitCode::usage,
         "parallelism.pipeline: {} stages, but the model has only {} layer{} with parameters; take "
         "at most {}",
         stages, end + 1, end == 0 ? "" : "s", end + 1);
  }
  // slowest[k][b]: the least possible time of the slowest of stages 0 … k, which end at border b.
  const auto seconds = [&](const Border* from, const Border& to) {
    return to.before - (from ? from->before : 0) + to.sending + (from ? from->sending : 0);
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> slowest(count, std::vector<double>(end + 1, kNever));
  std::vector<std::vector<size_t>> previous(count, std::vector<size_t>(end + 1, 0));
  for (size_t b = 0; b <= end; ++b) slowest[0][b] = seconds(nullptr, borders[b]);
  for (size_t k = 1; k < count; ++k) {
    for (size_t b = k; b <= end; ++b) {
      // From the shortest stage on, until longer ones can only be slower.
      for (size_t a = b; a-- > k - 1;) {
        if (borders[b].before - borders[a].before > slowest[k][b]) break;
        const double time = std::max(slowest[k - 1][a], seconds(&borders[a], borders[b]));
        if (time > slowest[k][b]) continue;
        slowest[k][b] = time;
        previous[k][b] = a;
      }
    }
  }
  std::vector<std::string> out(count - 1);
  for (size_t k = count - 1, b = end; k > 0; --k) {
    b = previous[k][b];
    out[k - 1] = forward.nodes[borders[b].node].layer;
  }
  return out;
}

std::vector<int> find_equal_stages(const Graph& forward, const std::vector<std::string>& begins,
                                   const std::function<std::string(const Node&)>& more) {
  const size_t count = begins.size() + 1;
  std::vector<size_t> stage_of;  // of each node
  for (const Node& node : forward.nodes) {
    size_t stage = stage_of.empty() ? 0 : stage_of.back();
    if (stage < begins.size() && node.layer == begins[stage]) ++stage;
    stage_of.push_back(stage);
  }
  std::vector<std::string> texts(count);
  std::map<ValueId, size_t> furthest;  // the last stage that reads a value
  for (size_t i = 0; i < forward.nodes.size(); ++i) {
    const Node& node = forward.nodes[i];
    Attributes attributes = node.attributes;
    attributes.set("stream", int64_t{0});  // random numbers differ by layer
    texts[stage_of[i]] += fmt::format("{} {} {}{}\n", node.op->name, to_string(attributes),
                                      show_specs(forward.input_specs(node)), more(node));
    for (ValueId id : node.inputs) {
      if (id != kNoValue) furthest[id] = stage_of[i];
    }
  }
  for (const auto& [id, last] : furthest) {
    const int producer = forward.value(id).producer;
    if (producer < 0) continue;
    const size_t first = stage_of[static_cast<size_t>(producer)];
    for (size_t stage = first; stage <= last && last > first; ++stage) {
      texts[stage] += fmt::format("{} crosses{}{}\n", to_string(forward.value(id).spec),
                                  stage == first ? " out" : "", stage == last ? " in" : "");
    }
  }
  std::vector<int> out;
  for (size_t i = 0; i < count; ++i) {
    const bool inner = i > 0 && i + 1 < count;
    const auto equal = std::find(texts.begin() + 1, texts.end(), texts[i]);
    out.push_back(static_cast<int>(inner ? equal - texts.begin() : static_cast<long>(i)));
  }
  return out;
}

std::vector<std::string> find_stages(const Graph& forward, const std::vector<std::string>& begins) {
  std::vector<std::string> layers, out;  // in order
  for (const Node& node : forward.nodes) {
    const bool is_new = std::ranges::find(layers, node.layer) == layers.end();
    if (is_new && !node.layer.empty()) layers.push_back(node.layer);
  }
  const std::set<std::string> with_parameters = layers_with_parameters(forward);
  const auto refuse = [&](const std::string& path, const std::string& why) {
    fail(ExitCode::usage, "parallelism.pipeline_stages: no stage can begin with '{}': {}", path,
         why);
  };
  size_t after = 0;  // the first layer of the stage before
  for (const std::string& path : begins) {
    const auto is_within = [&](const std::string& layer) {
      return layer == path || layer.starts_with(path + ".");
    };
    auto found = std::ranges::find_if(layers, is_within);
    if (found == layers.end()) {
      refuse(path, fmt::format("the model has no such layer; its layers are, in order: {}",
                               fmt::join(layers, ", ")));
    }
    found = std::find_if(found, layers.end(),
                         [&](const std::string& layer) { return with_parameters.contains(layer); });
    if (found == layers.end()) refuse(path, "no layer from there on has parameters");
    const auto at = static_cast<size_t>(found - layers.begin());
    if (at == 0) refuse(path, "it is the first layer");
    if (at == after) {
      refuse(path, out.back() == path
                       ? "it is named twice"
                       : fmt::format("its first layer with parameters, '{}', is that "
                                     "with which the stage before begins",
                                     out.back()));
    }
    if (at < after) {
      refuse(path, fmt::format("it comes before '{}', with which the stage before begins; name the "
                               "layers in the order of the model",
                               out.back()));
    }
    out.push_back(layers[at]);
    after = at;
  }
  return out;
}

}  // namespace dltrain

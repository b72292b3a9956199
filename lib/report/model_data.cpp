#include "report/model_data.h"

#include <nlohmann/json.hpp>

#include "base/encodings.h"
#include "compile/plan_report.h"
#include "config/load.h"
#include "data/picture.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

using ModelJson = nlohmann::ordered_json;

ModelJson layers_json(const PlanReport& report) {
  ModelJson out = ModelJson::array();
  for (const LayerCost& layer : fold_equal_blocks(report.layers)) {
    out.push_back({{"name", layer.layer},
                   {"copies", layer.copies},
                   {"parameters", layer.parameters},
                   {"activation_bytes", layer.activation_bytes},
                   {"forward_flops", layer.forward_flops},
                   {"backward_flops", layer.backward_flops}});
  }
  return out;
}

ModelJson memory_json(const PlanReport& report) {
  ModelJson out = ModelJson::array();
  const auto add = [&](const std::string& what, size_t bytes) {
    if (bytes > 0) out.push_back({{"what", what}, {"bytes", bytes}});
  };
  for (const auto& [kind, bytes] : report.state_bytes) add(kind, bytes);
  add("activations, workspaces", report.work_bytes);
  add("input staging", report.stage_bytes);
  return out;
}

// The live bytes of activations and workspaces over the calls of a micro-step and the update. Of
// many calls it has the one with the most bytes in each group.
ModelJson timeline_json(const Program& program, const MemoryPeak& peak) {
  constexpr size_t kMost = 2000, kNamed = 8;
  const std::vector<Node>& nodes = program.graph().nodes;
  const std::vector<size_t> live = program.live_bytes();
  const auto what_of = [](std::string_view op, const std::string& layer) {
    return fmt::format("{} of {}", op, layer.empty() ? "the model" : layer);
  };
  ModelJson at = ModelJson::array(), bytes = at, what = at, phases = at, largest = at;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i > 0 && nodes[i].phase == nodes[i - 1].phase) continue;
    phases.push_back({{"name", phase_name(nodes[i].phase)}, {"from", i}});
  }
  const size_t groups = std::min(kMost, nodes.size());
  for (size_t group = 0; group < groups; ++group) {
    const auto from = live.begin() + static_cast<ptrdiff_t>(group * nodes.size() / groups);
    const auto to = live.begin() + static_cast<ptrdiff_t>((group + 1) * nodes.size() / groups);
    const auto call = static_cast<size_t>(std::max_element(from, to) - live.begin());
    at.push_back(call);
    bytes.push_back(live[call]);
    what.push_back(what_of(nodes[call].op->name, nodes[call].layer));
  }
  size_t rest = peak.bytes;
  for (const MemoryPeak::LiveValue& value : peak.live) {
    if (largest.size() == kNamed) break;
    largest.push_back({{"what", value.what}, {"bytes", value.bytes}});
    rest -= value.bytes;
  }
  if (rest > 0) largest.push_back({{"what", "others"}, {"bytes", rest}});
  return {{"at", at},
          {"bytes", bytes},
          {"what", what},
          {"phases", phases},
          {"peak",
           {{"bytes", peak.bytes},
            {"what", fmt::format("{} ({})", what_of(peak.op, peak.layer), peak.phase)},
            {"largest", largest}}}};
}

ModelJson images_of(const Dataset& dataset, const ModelJson& rows) {
  constexpr size_t kMost = 64;
  ModelJson out = ModelJson::array();
  const TensorSpec& sample = dataset.fields().front().sample;
  const Shape& image = sample.shape;
  const int64_t channels = image.rank() == 3 ? image[2] : 1;
  if (sample.dtype != DType::f32 || image.rank() < 2 || image.rank() > 3 || channels > 4) {
    return out;
  }
  std::vector<float> values(static_cast<size_t>(image.elements()));
  for (const ModelJson& row : rows) {
    const int64_t index = row.value("sample", int64_t{-1});
    if (index < 0 || index >= dataset.size() || out.size() == kMost) break;
    dataset.gather(0, {&index, 1}, reinterpret_cast<std::byte*>(values.data()));
    const Picture picture = contact_sheet(values, image[0], image[1], channels, {""});
    out.push_back("data:image/png;base64," + base64(picture.png()));
  }
  return out;
}

}  // namespace

ModelJson report_model(const RunRecord& run, const Engines& engines, ModelJson& predictions) {
  try {
    Experiment experiment =
        load_config<Experiment>({.files = {run.folder / "config.yaml"}, .overrides = {}});
    const int world = run.attempts.empty() ? 1 : static_cast<int>(run.attempts.back().ranks);
    const Session session = open_planned_rank(experiment, {.engines = engines}, world, 0);
    const StepGraph& graph = session.executor->training();
    const PlanReport report = session.executor->report();
    int64_t parameters = 0;
    for (const ParameterInfo& info : graph.parameters) {
      if (info.role == Role::parameter) parameters += info.spec.shape.elements();
    }
    std::string inputs;
    for (const FieldSpec& field : session.data.train->fields()) {
      if (&field == &session.data.train->fields().back()) break;
      inputs +=
          fmt::format("{}{} {}", inputs.empty() ? "" : ", ", field.name, to_string(field.sample));
    }
    if (predictions.is_object() && session.data.eval) {
      predictions["images"] = images_of(*session.data.eval, predictions["rows"]);
    }
    return {{"parameters", parameters},
            {"inputs", inputs},
            {"output", to_string(graph.output_spec)},
            {"device", session.executor->device().properties().name},
            {"flops_per_step", report.flops_per_step},
            {"kernel_calls", report.kernel_calls},
            {"layers", layers_json(report)},
            {"memory", memory_json(report)},
            {"host_memory", host_memory(session).total()},
            {"timeline", timeline_json(session.executor->training_program(), report.peak)}};
  } catch (const std::exception& error) {
    return {{"problem", error.what()}};
  }
}

}  // namespace dltrain

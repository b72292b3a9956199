#include "profile/trace.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include <fmt/format.h>

#include "graph/slots.h"
#include "telemetry/chrome_trace.h"

namespace dltrain {
namespace {

// Threads, from the top.
constexpr int kTraining = 1, kFirstWorker = 10, kFirstStream = 1000;

constexpr std::string_view kPartNames[kStepParts] = {"step", "data", "inputs", "results", "ranks"};

class Writer {
 public:
  Writer(const Recording& recording, const MachineLimits& limits, int rank, int64_t origin)
      : recording_(recording),
        works_(limits),
        origin_(origin),
        trace_(rank, fmt::format("rank {}", rank)) {}

  std::string write() {
    trace_.name_thread(kTraining, "training");
    add_parts();
    add_segments();
    for (size_t i = 0; i < recording_.calls.size(); ++i) add_call(i);
    add_fills();
    add_device();
    return trace_.events();
  }

 private:
  void add_parts() {
    for (const PartEvent& part : recording_.parts) {
      const auto name = kPartNames[static_cast<size_t>(part.part)];
      JsonObject arguments;
      const bool step = part.part == StepPart::step;
      if (step) arguments.add("step", part.index + 1);
      trace_.slice(kTraining, step ? fmt::format("step {}", part.index + 1) : std::string(name),
                   "step", at(part.begin), at(part.end), arguments);
    }
  }

  // Runs of calls of one phase that nothing else of the thread interrupts.
  void add_segments() {
    const auto& calls = recording_.calls;
    auto part = recording_.parts.begin();
    for (size_t first = 0, i = 1; i <= calls.size(); ++i) {
      while (part != recording_.parts.end() && part->begin < calls[i - 1].end) ++part;
      const bool continues = i < calls.size() && phase(i) == phase(first) &&
                             (part == recording_.parts.end() || calls[i].begin < part->begin);
      if (continues) continue;
      trace_.slice(kTraining, phase_name(phase(first)), "segment", at(calls[first].begin),
                   at(calls[i - 1].end));
      first = i;
    }
  }

  void add_call(size_t i) {
    const CallEvent& event = recording_.calls[i];
    const CallWork& work = works_.of(event);
    trace_.slice(kTraining, call_label(*event.program, event.call),
                 work.communicates ? "communication" : "op", at(event.begin), at(event.end),
                 arguments_of(event, work));
    if (!work.communicates) return;
    // In a pipeline several micro-batches are on their way, and end in the order of their begins.
    std::deque<int64_t>& begun = messages_[work.slot];
    if (begins_slot(event.program->graph().nodes[event.program->calls()[event.call].node])) {
      begun.push_back(event.begin);
      return;
    }
    if (begun.empty()) return;
    const std::string name = work.op.substr(0, work.op.rfind('_'));
    JsonObject arguments;
    arguments.add("layer", work.layer);
    trace_.async_slice(static_cast<int64_t>(i), name, "communication", at(begun.front()),
                       at(event.end), arguments);
    begun.pop_front();
  }

  JsonObject arguments_of(const CallEvent& event, const CallWork& work) const {
    const Graph& graph = event.program->graph();
    const Call& call = event.program->calls()[event.call];
    const Node& node = graph.nodes[call.node];
    std::vector<std::string> inputs, outputs;
    for (ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? "none" : to_string(graph.value(id).spec));
    }
    for (ValueId id : node.outputs) outputs.push_back(to_string(graph.value(id).spec));
    JsonObject out;
    out.add("op", work.op).add("kernel", work.variant).add("layer", work.layer);
    out.add("inputs", inputs).add("outputs", outputs);
    out.add("flops", work.cost.flops).add("bytes", work.cost.bytes);
    return out;
  }

  void add_fills() {
    std::set<int> workers;
    for (const FillEvent& fill : recording_.fills) {
      if (workers.insert(fill.worker).second) {
        trace_.name_thread(kFirstWorker + fill.worker, fmt::format("data worker {}", fill.worker));
      }
      JsonObject arguments;
      arguments.add("batch", fill.batch);
      trace_.slice(kFirstWorker + fill.worker, "fill batch", "data", at(fill.begin), at(fill.end),
                   arguments);
    }
  }

  void add_device() {
    constexpr std::string_view kKinds[] = {"call", "kernel", "copy", "zero"};
    std::set<uint32_t> streams;
    for (const DeviceActivity& activity : recording_.device) {
      const int thread = kFirstStream + static_cast<int>(activity.stream);
      if (streams.insert(activity.stream).second) {
        trace_.name_thread(thread, fmt::format("device, stream {}", activity.stream));
      }
      JsonObject arguments;
      if (activity.tag >= 0) {
        const CallEvent& event = recording_.calls[static_cast<size_t>(activity.tag)];
        arguments = arguments_of(event, works_.of(event));
        arguments.add("call", call_label(*event.program, event.call));
      }
      if (activity.bytes > 0) arguments.add("moved", activity.bytes);
      trace_.slice(thread, activity.name, kKinds[static_cast<size_t>(activity.kind)],
                   at(activity.begin), at(activity.end), arguments);
    }
  }

  int64_t at(int64_t time) const { return time - origin_; }
  Phase phase(size_t i) { return works_.of(recording_.calls[i]).phase; }

  const Recording& recording_;
  CallWorkCache works_;
  int64_t origin_;
  ChromeTrace trace_;
  std::map<int64_t, std::deque<int64_t>> messages_;  // by slot: when those under way began
};

}  // namespace

std::string trace_events(const Recording& recording, const MachineLimits& limits, int rank,
                         int64_t origin) {
  return Writer(recording, limits, rank, origin).write();
}

}  // namespace dltrain

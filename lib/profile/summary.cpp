#include "profile/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "profile/intervals.h"

namespace dltrain {
namespace {

double seconds_of(int64_t nanoseconds) {
  return 1e-9 * static_cast<double>(nanoseconds);
}

// Returns the dtype of the arithmetic: that of the elements of the largest matrix. u8: FP8.
DType arithmetic_of(const Graph& graph, const Node& node) {
  if (node.op->name == "fp8_matmul") return DType::u8;
  for (ValueId id : node.inputs) {
    if (id != kNoValue && is_floating(graph.value(id).spec.dtype)) {
      return graph.value(id).spec.dtype;
    }
  }
  return DType::f32;
}

// An addition beside the kernel that cannot add: two values read, one written.
Cost cost_of_addition(const TensorSpec& output) {
  return {.flops = static_cast<double>(output.shape.elements()),
          .bytes = 3 * static_cast<double>(output.bytes())};
}

CallWork work_of(const Program& program, size_t index, const MachineLimits& limits) {
  const Graph& graph = program.graph();
  const Call& call = program.calls()[index];
  const Node& node = graph.nodes[call.node];
  CallWork out{.op = std::string(node.op->name),
               .variant = std::string(call.row->variant),
               .layer = node.layer.empty() ? "model" : node.layer,
               .phase = node.phase,
               .slot = node.attributes.integer("slot", -1)};
  out.communicates = out.slot >= 0;
  if (call.adds_temporary) {
    out.op += " (addition)";
    out.cost = cost_of_addition(graph.value(node.outputs[0]).spec);
  } else {
    out.cost = graph.cost(node);
  }
  if (out.communicates) return out;
  const double flops = limits.flops(arithmetic_of(graph, node));
  const double arithmetic = flops > 0 ? out.cost.flops / flops : 0;
  const double memory = limits.bytes > 0 ? out.cost.bytes / limits.bytes : 0;
  out.limit_seconds = std::max(arithmetic, memory);
  out.by_arithmetic = arithmetic > memory;
  return out;
}

// "f32[64, 784] × f32[784, 10] → f32[64, 10]"
std::string shapes_of(const Program& program, size_t call) {
  const Graph& graph = program.graph();
  const Node& node = graph.nodes[program.calls()[call].node];
  std::string out;
  for (ValueId id : node.inputs) {
    if (id != kNoValue) out += (out.empty() ? "" : ", ") + to_string(graph.value(id).spec);
  }
  if (node.outputs.empty()) return out;
  return out + (out.empty() ? "→ " : " → ") + to_string(graph.value(node.outputs[0]).spec);
}

// Rows by key, added up over the steps.
class Rows {
 public:
  void add(const std::string& key, const std::string& name, const std::string& detail,
           const CallWork& work, double seconds) {
    ProfileRow& row = rows_[key];
    row.name = name;
    row.detail = detail;
    row.calls += 1;
    row.seconds += seconds;
    (work.phase == Phase::forward  ? row.forward
     : work.phase == Phase::update ? row.update
                                   : row.backward) += seconds;
    row.flops += work.cost.flops;
    row.bytes += work.cost.bytes;
    row.limit_seconds += work.limit_seconds;
  }

  std::vector<ProfileRow> sorted(double steps) const {
    std::vector<ProfileRow> out;
    for (const auto& [key, row] : rows_) {
      out.push_back(row);
      ProfileRow& mean = out.back();
      for (double* value : {&mean.calls, &mean.seconds, &mean.forward, &mean.backward, &mean.update,
                            &mean.flops, &mean.bytes, &mean.limit_seconds}) {
        *value /= steps;
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const ProfileRow& a, const ProfileRow& b) {
      return a.seconds > b.seconds;
    });
    return out;
  }

 private:
  std::map<std::string, ProfileRow> rows_;
};

// Returns the times in which the work of each call ran, on the host or on the device.
std::vector<std::vector<Interval>> times_of_calls(const Recording& recording) {
  std::vector<std::vector<Interval>> times(recording.calls.size());
  if (recording.synchronous) {
    for (size_t i = 0; i < times.size(); ++i) {
      times[i].push_back({recording.calls[i].begin, recording.calls[i].end});
    }
    return times;
  }
  for (const DeviceActivity& activity : recording.device) {
    if (activity.tag < 0) continue;
    times[static_cast<size_t>(activity.tag)].push_back({activity.begin, activity.end});
  }
  return times;
}

Intervals parts(const Recording& recording, StepPart part) {
  std::vector<Interval> out;
  for (const PartEvent& event : recording.parts) {
    if (event.part == part) out.push_back({event.begin, event.end});
  }
  return merged(std::move(out));
}

// Divides the step into the work of the calls by phase, and the work of the host while no call ran.
std::vector<StepShare> cut_step(const Recording& recording, CallWorkCache& works,
                                const std::vector<std::vector<Interval>>& times, double steps,
                                std::vector<Gap>& gaps) {
  std::array<std::vector<Interval>, kPhases> by_phase;
  std::vector<Interval> messages;
  for (size_t i = 0; i < times.size(); ++i) {
    const CallWork& work = works.of(recording.calls[i]);
    auto& list = work.communicates ? messages : by_phase[static_cast<size_t>(work.phase)];
    list.insert(list.end(), times[i].begin(), times[i].end());
  }
  Intervals rest = parts(recording, StepPart::step);
  std::vector<StepShare> shares;
  const Intervals all_steps = rest;
  const auto note_gaps = [&](const char* cause, const Intervals& when) {
    for (const Interval& gap : when) {
      const auto step = std::ranges::upper_bound(all_steps, gap.begin, {}, &Interval::begin) - 1;
      gaps.push_back({seconds_of(gap.end - gap.begin), cause, step - all_steps.begin(),
                      seconds_of(gap.begin - all_steps.front().begin)});
    }
  };
  bool kernel = true;
  const auto take = [&](const char* name, const Intervals& when, const char* meaning) {
    const Intervals taken = common(rest, when);
    shares.push_back({name, seconds_of(total(taken)) / steps, meaning});
    rest = without(rest, when);
    if (!kernel) note_gaps(name, taken);
  };
  auto& [forward, backward, weights, update] = by_phase;
  backward.insert(backward.end(), weights.begin(), weights.end());
  take("forward", merged(forward), "kernels");
  take("backward", merged(backward), "kernels");
  take("update", merged(update), "kernels: gradient norm, clipping, optimizer");
  kernel = false;
  const Intervals agreeing = parts(recording, StepPart::ranks);
  messages.insert(messages.end(), agreeing.begin(), agreeing.end());
  take("communication", merged(messages), "waiting for other ranks, beyond what kernels hide");
  take("data", parts(recording, StepPart::data), "waiting for the loader (data.workers)");
  take("inputs", parts(recording, StepPart::inputs), "handing batches to the step");
  take("results", parts(recording, StepPart::results), "waiting for the step's sums");
  note_gaps("host", rest);
  std::ranges::sort(gaps, std::ranges::greater(), &Gap::seconds);
  gaps.resize(std::min<size_t>(gaps.size(), 10));
  shares.push_back({"host", seconds_of(total(rest)) / steps,
                    recording.synchronous ? "between the kernels: the loop, profiling"
                                          : "launching: the device has nothing to do"});
  return shares;
}

// The first fill of a thread only tells how much processor time it had used before.
LoaderTotals loader_totals(const Recording& recording, double steps) {
  LoaderTotals out;
  std::map<int, std::vector<const FillEvent*>> threads;
  for (const FillEvent& fill : recording.fills) threads[fill.worker].push_back(&fill);
  double timed = 0, computed = 0;
  for (const auto& [worker, fills] : threads) {
    for (size_t i = 0; i < fills.size(); ++i) {
      const double wall = seconds_of(fills[i]->end - fills[i]->begin);
      out.fill_seconds += wall / steps;
      if (i == 0 || fills[i]->cpu < 0 || fills[i - 1]->cpu < 0) continue;
      timed += wall;
      computed += seconds_of(fills[i]->cpu - fills[i - 1]->cpu);
    }
  }
  out.computing = timed > 0 ? out.fill_seconds * std::min(1.0, computed / timed) : NAN;
  return out;
}

void add_to(KernelTotals& totals, const CallWork& work, double seconds, double steps) {
  if (work.communicates) return;
  totals.flops += work.cost.flops / steps;
  totals.bytes += work.cost.bytes / steps;
  totals.calls += 1 / steps;
  const double needed = std::min(work.limit_seconds, seconds);
  if (seconds < kShortCall) {
    totals.short_calls += 1 / steps;
    totals.short_excess += (seconds - needed) / steps;
  }
  (work.by_arithmetic ? totals.arithmetic_seconds : totals.memory_seconds) += seconds / steps;
  (work.by_arithmetic ? totals.arithmetic_limit : totals.memory_limit) += needed / steps;
}

}  // namespace

const CallWork& CallWorkCache::of(const CallEvent& event) {
  auto& works = works_[event.program];
  for (size_t i = works.size(); i < event.program->calls().size(); ++i) {
    works.push_back(work_of(*event.program, i, limits_));
  }
  return works[event.call];
}

Profile summarize(const Recording& recording, const MachineLimits& limits) {
  const Intervals steps = parts(recording, StepPart::step);
  Profile out;
  for (const PartEvent& event : recording.parts) out.steps += event.part == StepPart::step ? 1 : 0;
  check_internal(out.steps > 0, "a profile of no step");
  const auto count = static_cast<double>(out.steps);
  out.step_seconds = seconds_of(total(steps)) / count;
  CallWorkCache works(limits);
  const auto times = times_of_calls(recording);
  out.shares = cut_step(recording, works, times, count, out.gaps);
  out.loader = loader_totals(recording, count);
  Rows ops, layers, calls;
  for (size_t i = 0; i < times.size(); ++i) {
    const CallEvent& event = recording.calls[i];
    const CallWork& work = works.of(event);
    int64_t nanoseconds = 0;
    for (const Interval& time : times[i]) nanoseconds += time.end - time.begin;
    const double seconds = seconds_of(nanoseconds);
    add_to(out.kernels, work, seconds, count);
    const std::string shapes = shapes_of(*event.program, event.call);
    ops.add(work.op + '\n' + work.variant, work.op, work.variant, work, seconds);
    layers.add(work.layer, work.layer, "", work, seconds);
    calls.add(
        fmt::format("{}\n{}\n{}\n{}", work.layer, work.op, static_cast<int>(work.phase), shapes),
        work.layer + " " + work.op, shapes, work, seconds);
  }
  out.ops = ops.sorted(count);
  out.layers = layers.sorted(count);
  out.calls = calls.sorted(count);
  return out;
}

}  // namespace dltrain

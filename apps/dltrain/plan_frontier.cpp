// `dltrain plan --frontier`: memory against time of recomputation.
#include <algorithm>
#include <cmath>

#include "base/memory.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

constexpr int kPoints = 16;  // of memory.recompute: auto
constexpr int kWidth = 40;   // of the longest bar, in columns

struct FrontierPoint {
  std::string name;
  double bytes = 0, flops = 0, seconds = 0, forward_seconds = 0;
  int calls = 0;
  // Whether another one needs neither more memory nor more time, and less of one.
  bool is_worse(const FrontierPoint& other) const {
    return other.bytes <= bytes && other.seconds <= seconds &&
           (other.bytes < bytes || other.seconds < seconds);
  }
};

FrontierPoint planned_point(Experiment& experiment, SessionOptions& options, std::string name,
                            RecomputeChoice choice) {
  options.recompute_choice = choice;
  const Session session = open_session(experiment, options);
  options.data = session.options.data;
  const PlanReport report = session.executor->report();
  const StepGraph& graph = session.executor->training();
  return {.name = std::move(name),
          .bytes = static_cast<double>(report.arena_bytes),
          .flops = report.flops_per_step,
          .seconds = graph.recomputed_seconds,
          .forward_seconds = graph.forward_seconds,
          .calls = graph.recomputed_nodes};
}

}  // namespace

void print_frontier(Experiment& experiment, SessionOptions options) {
  experiment.memory.recompute = Recompute::automatic;
  std::vector<FrontierPoint> points;
  points.push_back(planned_point(experiment, options, "none", {Recompute::none}));
  for (const auto& [name, mode] : {std::pair("selective", Recompute::selective),
                                   {"blocks", Recompute::blocks},
                                   {"full", Recompute::full}}) {
    try {
      points.push_back(planned_point(experiment, options, name, {mode}));
    } catch (const Error&) {
      // A model without a `repeat` has no blocks.
    }
  }
  for (int i = 0; i < kPoints; ++i) {
    // More points where less memory costs more time.
    const double share = std::pow(static_cast<double>(i) / (kPoints - 1), 2);
    points.push_back(planned_point(experiment, options, "auto", {Recompute::automatic, share}));
  }
  const FrontierPoint none = points.front();
  std::ranges::stable_sort(points, std::greater(), &FrontierPoint::bytes);
  fmt::print("memory against time of memory.recompute; `auto` finds the best for memory.budget\n");
  fmt::print("  {:<9}  {:>10}  {:>5}  {:>7}  {:>8}  {}\n", "recompute", "memory", "calls", "FLOP",
             "forward", "");
  std::string before;
  for (const FrontierPoint& point : points) {
    const bool worse = std::ranges::any_of(
        points, [&](const FrontierPoint& other) { return point.is_worse(other); });
    if (worse && point.name == "auto") continue;
    const auto width = static_cast<int>(std::lround(kWidth * point.bytes / none.bytes));
    std::string bar;
    for (int i = 0; i < width; ++i) bar += worse ? "░" : "█";
    const std::string line = fmt::format("  {:<9}  {:>10}  {:>5}  {:>+6.1f}%  {:>+7.1f}%  {}",
                                         point.name, bytes_text(static_cast<size_t>(point.bytes)),
                                         point.calls, 100 * (point.flops / none.flops - 1),
                                         100 * point.seconds / point.forward_seconds, bar);
    if (line != before) fmt::print("{}\n", line);
    before = line;
  }
  fmt::print(
      "calls: forward calls that run again; forward: their estimated time over that of the "
      "forward; ░: another row needs less of both\n");
}

}  // namespace dltrain

// A layout of ranks that the search considers, and those of one mesh.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dltrain/gpu_estimate.h"

namespace dltrain {

// Exact plans of a mesh. None is made after two that fit, nor where a layout should take kSlower
// times as long as the fastest of all meshes, or kBehind times if none of the mesh fits.
inline constexpr size_t kPlans = 5, kFitting = 2;
inline constexpr double kSlower = 1.05, kBehind = 1.25;

struct LayoutCandidate {
  int64_t data = 1, context = 1, expert = 1, tensor = 1, pipeline = 1;
  int64_t chunks = 1, zero = 0, micro_batch = 1;
  bool given = false;  // the configuration has a context or expert above 1, to be replaced
  std::string recompute = {};
  std::string schedule = {};    // empty: as configured
  double guess = 0;             // seconds of a step, by which candidates are ordered
  LayoutEstimate planned = {};  // exact memory
  std::string refused = {};     // why there is no plan

  bool zero_bubble() const { return schedule == "zero_bubble"; }
  bool has_mesh_of(const LayoutCandidate& other) const {
    return tensor == other.tensor && pipeline == other.pipeline && context == other.context &&
           expert == other.expert;
  }
  // Most refusals depend on the mesh, the sharding of state and the schedule.
  bool is_like(const LayoutCandidate& other) const {
    return zero == other.zero && schedule == other.schedule && chunks == other.chunks;
  }
  // Returns whether it surely needs as much memory as another of its mesh.
  bool needs_memory_of(const LayoutCandidate& other) const {
    const bool schedules = chunks == other.chunks &&
                           (schedule == other.schedule || (zero_bubble() && other.chunks == 1));
    return schedules && recompute == other.recompute && zero <= other.zero &&
           micro_batch >= other.micro_batch;
  }
  bool fits() const { return refused.empty() && planned.fits(); }
  // Those that fit come first, the fastest of them, then those that lack the least memory.
  std::tuple<bool, bool, double> order() const {
    const bool fits = planned.fits();
    return {!refused.empty(), !fits, fits ? planned.seconds : planned.needed};
  }
  std::vector<std::string> overrides() const {
    std::vector<std::string> out{"parallelism.layout=given",
                                 fmt::format("parallelism.tensor={}", tensor),
                                 fmt::format("parallelism.sequence_parallel={}", tensor > 1),
                                 fmt::format("parallelism.pipeline={}", pipeline),
                                 fmt::format("parallelism.zero_stage={}", zero),
                                 fmt::format("training.micro_batch_size={}", micro_batch),
                                 "memory.recompute=" + recompute};
    if (context > 1 || given) out.push_back(fmt::format("parallelism.context={}", context));
    if (expert > 1 || given) out.push_back(fmt::format("parallelism.expert={}", expert));
    if (expert == 1 && given) out.emplace_back("parallelism.expert_buffer=worst");
    if (schedule.empty()) return out;
    out.push_back("parallelism.pipeline_schedule=" + schedule);
    out.push_back(fmt::format("parallelism.virtual_stages={}", chunks));
    return out;
  }
};

// The layouts of a mesh, those that promise most first, and those of them that have been planned.
struct MeshLayouts {
  std::vector<LayoutCandidate> open = {}, planned = {};

  size_t refusals() const {
    return static_cast<size_t>(
        std::ranges::count_if(planned, [](const auto& c) { return !c.refused.empty(); }));
  }
  bool is_refused() {
    return !planned.empty() && refusals() == planned.size() && next() == open.end();
  }

  // Moves the next one to `planned` if that is worth a plan. `fastest`: seconds of a step of the
  // fastest layout of all meshes that fits.
  bool prepare_next(double fastest) {
    const auto fitting = std::ranges::count_if(planned, &LayoutCandidate::fits);
    if (planned.size() - refusals() == kPlans || std::cmp_equal(fitting, kFitting)) return false;
    const auto next = this->next();
    if (next == open.end()) return false;
    // Guesses of one mesh are wrong by much the same factor.
    double factor = std::numeric_limits<double>::infinity();
    for (const LayoutCandidate& candidate : planned) {
      if (!candidate.refused.empty()) continue;
      factor = std::min(factor, candidate.planned.seconds / candidate.guess);
    }
    const double worth = (fitting > 0 ? kSlower : kBehind) * fastest;
    if (std::isfinite(factor) && next->guess * factor > worth) return false;
    planned.push_back(*next);
    open.erase(next);
    return true;
  }

 private:
  // Returns the first that may fit and is not like one that was refused.
  std::vector<LayoutCandidate>::iterator next() {
    return std::ranges::find_if(open, [&](const LayoutCandidate& candidate) {
      return std::ranges::none_of(planned, [&](const LayoutCandidate& other) {
        return other.refused.empty() ? !other.planned.fits() && candidate.needs_memory_of(other)
                                     : candidate.is_like(other);
      });
    });
  }
};

}  // namespace dltrain

// Reads the attributes of update ops: the rule with its constants, and the groups of parameters.
#pragma once

#include <cstddef>
#include <vector>

#include "base/philox.h"
#include "ops/attributes.h"
#include "shared/adafactor_rules.h"
#include "shared/element_rules.h"
#include "shared/state_rules.h"
#include "shared/trust_rules.h"

namespace dltrain {

struct UpdateGroups {
  explicit UpdateGroups(const Attributes& attributes);

  std::vector<GroupSettings> settings;  // of each group
  std::vector<size_t> group;            // of each of the op's tensors

  const GroupSettings& of(size_t tensor) const { return settings[group[tensor]]; }
};

// Stochastic rounding of parameters without masters; empty if they have masters.
struct UpdateRounding {
  explicit UpdateRounding(const Attributes& attributes)
      : streams(attributes.integers("rounding")) {}

  std::vector<int64_t> streams;  // of each of the op's tensors

  bool any() const { return !streams.empty(); }
  uint64_t stream(size_t tensor) const { return static_cast<uint64_t>(streams[tensor]); }
  uint32_t bits(const StepState& state, size_t tensor, int64_t element) const {
    return random_bits(state.in.seed, stream(tensor), static_cast<uint64_t>(state.in.step),
                       static_cast<uint64_t>(element));
  }
};

EmaAttributes ema_attributes(const Attributes& attributes);
ClipPercentileAttributes clip_percentile_attributes(const Attributes& attributes);
RunningNorm running_norm_part(const Attributes& attributes);

// Returns the index of the input with the first parameter's copy; 0 without attribute `copies`.
inline size_t first_copy(const Attributes& a, size_t inputs) {
  return a.boolean("copies") ? inputs - static_cast<size_t>(a.integer("count", 1)) : 0;
}

// The constants of lars_update (besides those of SGD), lamb_update and adafactor_update.
inline LarsTrust lars_trust(const Attributes& a) {
  return {a.number("trust_coefficient", 1e-3), a.number("epsilon", 1e-8),
          a.boolean("always_adapt", false)};
}
inline LambRule lamb_rule(const Attributes& a) {
  return {a.number("beta1", 0.9), a.number("beta2", 0.999), a.number("epsilon", 1e-6),
          a.boolean("always_adapt", false)};
}
inline AdafactorRule adafactor_rule(const Attributes& a) {
  return {a.number("beta2_decay", -0.8), a.number("epsilon1", 0x1p-23), a.number("epsilon2", 1e-3),
          a.number("d", 1)};
}

}  // namespace dltrain

#include "shared/update_groups.h"

namespace dltrain {

UpdateGroups::UpdateGroups(const Attributes& attributes) {
  const std::vector<double> lr_scale = attributes.numbers("lr_scale", {1});
  const std::vector<double> weight_decay = attributes.numbers("weight_decay", {0});
  for (size_t g = 0; g < lr_scale.size(); ++g) settings.push_back({lr_scale[g], weight_decay[g]});
  const std::vector<int64_t> groups = attributes.integers("group");
  group.assign(static_cast<size_t>(attributes.integer("count", 1)), 0);
  for (size_t i = 0; i < groups.size(); ++i) group[i] = static_cast<size_t>(groups[i]);
}

EmaAttributes ema_attributes(const Attributes& a) {
  return {a.number("decay", 0.999), a.integer("start"), a.boolean("warmup")};
}

ClipPercentileAttributes clip_percentile_attributes(const Attributes& a) {
  return {a.number("percentile", 90), a.number("factor", 1), a.integer("min_history", 20)};
}

RunningNorm running_norm_part(const Attributes& a) {
  return {a.boolean("first"), a.boolean("last")};
}

}  // namespace dltrain

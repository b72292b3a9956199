// The keys `scale` and `normalize`, which several dataset kinds have.
#pragma once

#include <optional>

#include "config/fields.h"
#include "data/scaling.h"

namespace dltrain {

struct NormalizeConfig : Located {
  std::vector<double> mean, std;

  void describe(Fields& f) {
    f.numbers("mean", mean,
              {.doc = "Subtracted: one number, or one a channel (the innermost dimension)",
               .required = true,
               .min_size = 1,
               .scalar_ok = true});
    f.numbers("std", std,
              {.doc = "Divided by: one number, or one a channel",
               .required = true,
               .above = 0,
               .min_size = 1,
               .scalar_ok = true});
  }
};

struct ScalingConfig {
  double scale = 1;
  std::optional<NormalizeConfig> normalize;

  void describe(Fields& f) {
    f.number("scale", scale, {.doc = "Input values are multiplied by this first"});
    f.section("normalize", normalize, {.doc = "Then (value - mean) / std"});
  }

  Scaling options() const {
    if (!normalize) return {.scale = scale};
    return {.scale = scale, .mean = normalize->mean, .std = normalize->std};
  }

  // `channels`: of a sample's innermost dimension, where it is known already.
  void validate(const Located& owner, std::optional<int64_t> channels, Problems& problems) const {
    if (scale == 0) problems.add(owner, "scale", "scale must not be 0");
    if (!channels || !normalize) return;
    for (const auto& [key, list] :
         {std::pair("mean", &normalize->mean), {"std", &normalize->std}}) {
      if (list->size() == 1 || static_cast<int64_t>(list->size()) == *channels) continue;
      problems.add(*normalize, key,
                   fmt::format("{} has {} numbers; samples have {} channels (the innermost "
                               "dimension of shape)",
                               key, list->size(), *channels));
    }
  }
};

}  // namespace dltrain

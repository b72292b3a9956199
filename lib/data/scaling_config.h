// The keys `scale` and `normalize` of several dataset kinds: fixed numbers, or statistics of the
// training split (data/fitted.h).
#pragma once

#include <optional>

#include "config/fields.h"
#include "data/fitted.h"
#include "data/scaling.h"

namespace dltrain {

struct NormalizeConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "statistics";
  enum class From : uint8_t { keys, training };
  From statistics = From::keys;
  std::vector<double> mean, std;

  void describe(Fields& f) {
    f.choice("statistics", statistics,
             {{"given", From::keys, "the keys mean and std"},
              {"auto", From::training,
               "of the training split, for each column of a table (categories stay 0 and 1), "
               "otherwise for each channel; checkpoints store them"}},
             {.doc = "Source of mean and std; `normalize: auto` in short"});
    f.numbers("mean", mean,
              {.doc = "Subtracted: one number, or one per channel (the innermost dimension)",
               .scalar_ok = true});
    f.numbers("std", std,
              {.doc = "Divisor: one number, or one per channel", .above = 0, .scalar_ok = true});
  }

  void validate(Diagnostics& diagnostics) const {
    const bool given = !mean.empty() && !std.empty();
    if (statistics == From::keys && !given) {
      diagnostics.add(
          *this, mean.empty() ? "mean" : "std",
          fmt::format("missing key '{}' in normalize, which has mean and std, or is `auto`",
                      mean.empty() ? "mean" : "std"));
    } else if (statistics == From::training && !(mean.empty() && std.empty())) {
      diagnostics.add(*this, "statistics",
                      "normalize is `auto` or has mean and std, not both; -s '{}={{mean: …, std: "
                      "…}}' replaces `auto`",
                      location.path);
    }
  }
};

struct ScalingConfig {
  double scale = 1;
  std::optional<NormalizeConfig> normalize;

  void describe(Fields& f) {
    f.number("scale", scale, {.doc = "Input values are multiplied by this first"});
    f.section("normalize", normalize,
              {.doc = "Then (value - mean) / std; auto: with mean and std of the training split"});
  }

  bool fitted() const {
    return normalize && normalize->statistics == NormalizeConfig::From::training;
  }

  InputFit fit() const { return {.normalize = fitted(), .given = normalize && !fitted()}; }

  Scaling options() const {
    if (!normalize || fitted()) return {.scale = scale};
    return {.scale = scale, .mean = normalize->mean, .std = normalize->std};
  }

  // `channels` is the innermost dimension of a sample, if it is known.
  void validate(const ConfigObject& owner, std::optional<int64_t> channels,
                Diagnostics& diagnostics) const {
    if (scale == 0) diagnostics.add(owner, "scale", "scale must not be 0");
    if (!channels || !normalize || fitted()) return;
    for (const auto& [key, list] :
         {std::pair("mean", &normalize->mean), {"std", &normalize->std}}) {
      if (list->size() == 1 || static_cast<int64_t>(list->size()) == *channels) continue;
      diagnostics.add(*normalize, key,
                      fmt::format("{} has {} numbers; samples have {} channels (the innermost "
                                  "dimension of shape)",
                                  key, list->size(), *channels));
    }
  }
};

}  // namespace dltrain

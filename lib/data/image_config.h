// The common keys of 8-bit images: scale (by default 1/255, so that pixels become 0 to 1) and
// normalize.
#pragma once

#include "data/config.h"
#include "data/scaling_config.h"

namespace dltrain {

struct ImageConfig : DatasetConfig {
  ScalingConfig scaling{.scale = 1.0 / 255, .normalize = {}};

  void describe(Fields& f) override {
    scaling.describe(f);
    DatasetConfig::describe(f);
  }
  void validate(Diagnostics& diagnostics) const override {
    DatasetConfig::validate(diagnostics);
    scaling.validate(*this, {}, diagnostics);
  }
  InputFit fit() const override { return scaling.fit(); }
  std::shared_ptr<const Dataset> open(const OpenOptions&) const override {
    return make_image_dataset(open_images(), changes(), scaling.options());
  }

  std::shared_ptr<const ImageSource> open_images() const override = 0;
};

// The key `split` of data sets with two parts.
inline void describe_split(Fields& f, bool& test) {
  f.choice("split", test,
           {{"train", false, "the training samples"}, {"test", true, "the test samples"}},
           {.doc = "Part of the data set", .known_as = {"part", "subset"}});
}

}  // namespace dltrain

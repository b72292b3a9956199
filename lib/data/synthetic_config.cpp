// The keys of `type: synthetic`.
#include "data/registry.h"
#include "data/synthetic.h"

namespace dltrain {
namespace {

struct SyntheticConfig final : DatasetConfig {
  SyntheticOptions options;

  void describe(Fields& f) override {
    f.integers("shape", options.shape,
               {.doc = "Shape of a sample's inputs",
                .min = 1,
                .min_size = 1,
                .max_size = Shape::kMaxRank - 1});
    f.integer("classes", options.classes,
              {.doc = "Number of labels", .min = 1, .max = 2e9, .known_as = {"num_classes"}});
    f.integer("samples", options.samples,
              {.doc = "Number of samples", .min = 1, .known_as = {"num_samples", "size"}});
    f.integer("seed", options.seed, {.doc = "The samples are a function of it"});
    f.number("noise", options.noise,
             {.doc = "Standard deviation of the samples about their class's centre", .min = 0});
    DatasetConfig::describe(f);
  }

  std::shared_ptr<const Dataset> open() const override {
    return change_samples(make_synthetic(options), changes());
  }
};

}  // namespace

KindRow<DatasetConfig> synthetic_row() {
  return {"synthetic", "Made-up samples around a random centre for each class",
          make_kind_of<SyntheticConfig>};
}

}  // namespace dltrain

// The keys of `type: synthetic` and `type: synthetic_tokens`.
#include "data/config.h"
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
    f.integer("seed", options.seed, {.doc = "Seed of the samples"});
    f.number("noise", options.noise,
             {.doc = "Standard deviation of the samples about their class's centre", .min = 0});
    DatasetConfig::describe(f);
  }

  std::shared_ptr<const Dataset> open(const OpenOptions&) const override {
    return transform_samples(make_synthetic(options), changes());
  }
};

struct SyntheticTokensConfig final : DatasetConfig {
  SyntheticTokensOptions options;

  void describe(Fields& f) override {
    f.integer("vocab_size", options.vocab_size,
              {.doc = "Number of ids, uniformly distributed", .min = 1, .max = 2147483647});
    f.integer("length", options.length,
              {.doc = "Tokens of a sample", .min = 1, .known_as = {"block_size", "max_length"}});
    f.integer("samples", options.samples,
              {.doc = "Number of samples", .min = 1, .known_as = {"num_samples", "size"}});
    f.integer("seed", options.seed, {.doc = "Seed of the samples"});
    f.number("masked", options.masked,
             {.doc = "Share of the tokens that are masked (id 0), the only targets then; 0: every "
                     "target is the next token",
              .min = 0,
              .max = 1});
    DatasetConfig::describe(f);
  }

  std::shared_ptr<const Dataset> open(const OpenOptions&) const override {
    return transform_samples(make_synthetic_tokens(options), changes());
  }
};

}  // namespace

KindRow<DatasetConfig> synthetic_tokens_row() {
  return {"synthetic_tokens", "Sequences of random tokens, for measurements",
          make_kind_of<SyntheticTokensConfig>};
}

KindRow<DatasetConfig> synthetic_row() {
  return {"synthetic", "Random samples around a random centre for each class",
          make_kind_of<SyntheticConfig>};
}

}  // namespace dltrain

#include "data/synthetic.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/config.h"
#include "data/memory_dataset.h"

namespace dltrain {
namespace {

// Approximates a standard normal number by the sum of four uniform ones (Irwin-Hall).
float near_normal(const Philox4& bits) {
  float sum = 0;
  for (uint32_t v : bits.v) sum += uniform_from_bits(v);
  return (sum - 2.0f) * 1.7320508f;
}

// Returns samples * row. Throws Error(usage) if it is too large.
int64_t checked_product(const std::string& location, int64_t samples, int64_t row) {
  constexpr int64_t kMaxValues = int64_t{1} << 40;
  if (samples > kMaxValues / row) {
    fail(ExitCode::usage, "{}: {} samples of this shape are too many", location, samples);
  }
  return samples * row;
}

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

std::shared_ptr<const Dataset> make_synthetic_tokens(const SyntheticTokensOptions& options) {
  const std::string location = "synthetic tokens";
  const int64_t values = checked_product(location, options.samples, options.length);
  check_fits_memory(static_cast<uint64_t>(values) * 2 * sizeof(int32_t), location);
  const uint64_t tokens = options.seed ^ random_stream("synthetic.tokens");
  const uint64_t masks = options.seed ^ random_stream("synthetic.masks");
  std::vector<int32_t> inputs(static_cast<size_t>(values)), targets(inputs.size());
  const auto token = [&](int64_t sample, int64_t at) {
    const Philox4 bits =
        philox4x32(tokens, static_cast<uint64_t>(at), static_cast<uint64_t>(sample));
    return static_cast<int32_t>(bits.v[0] % static_cast<uint64_t>(options.vocab_size));
  };
  for (int64_t i = 0; i < values; ++i) {
    const int64_t sample = i / options.length, at = i % options.length;
    int32_t &input = inputs[static_cast<size_t>(i)], &target = targets[static_cast<size_t>(i)];
    input = token(sample, at);
    if (options.masked == 0) {
      target = token(sample, at + 1);
      continue;
    }
    const bool masked = random_uniform(masks, 0, 0, static_cast<uint64_t>(i)) < options.masked;
    target = masked ? input : kIgnoredLabel;
    if (masked) input = 0;
  }
  const Shape row{options.length};
  std::vector<FieldSpec> fields{{kInputField, {row, DType::i32}},
                                {kTargetField, {row, DType::i32}}};
  std::vector<FieldValues> all;
  all.emplace_back(std::move(inputs));
  all.emplace_back(std::move(targets));
  return std::make_shared<MemoryDataset>(
      std::move(fields), std::move(all),
      [location](int64_t sample) { return fmt::format("{}, sample {}", location, sample); });
}

std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options) {
  const std::string location = "synthetic data";
  int64_t values = options.samples;
  for (int64_t extent : options.shape) values = checked_product(location, values, extent);
  check_fits_memory(static_cast<uint64_t>(values) * sizeof(float), location);

  const int64_t row = values / options.samples;
  const uint64_t centres = options.seed ^ random_stream("synthetic.centres");
  const uint64_t noises = options.seed ^ random_stream("synthetic.noise");
  std::vector<float> inputs(static_cast<size_t>(values));
  std::vector<int32_t> labels(static_cast<size_t>(options.samples));
  const auto noise = static_cast<float>(options.noise);
  for (int64_t i = 0; i < options.samples; ++i) {
    const auto label = static_cast<uint64_t>(i % options.classes);
    labels[static_cast<size_t>(i)] = static_cast<int32_t>(label);
    float* out = inputs.data() + i * row;
    for (int64_t k = 0; k < row; ++k) {
      const auto element = static_cast<uint64_t>(k);
      out[k] = near_normal(philox4x32(centres, element, label)) +
               noise * near_normal(philox4x32(noises, element, static_cast<uint64_t>(i)));
    }
  }
  std::vector<FieldSpec> fields{{kInputField, {Shape(std::span(options.shape)), DType::f32}},
                                {kTargetField, {Shape{}, DType::i32}}};
  std::vector<FieldValues> all;
  all.emplace_back(std::move(inputs));
  all.emplace_back(std::move(labels));
  return std::make_shared<MemoryDataset>(
      std::move(fields), std::move(all),
      [location](int64_t sample) { return fmt::format("{}, sample {}", location, sample); });
}

KindRow<DatasetConfig> synthetic_tokens_row() {
  return {"synthetic_tokens", "Sequences of random tokens, for measurements",
          make_kind_of<SyntheticTokensConfig>};
}

KindRow<DatasetConfig> synthetic_row() {
  return {"synthetic", "Random samples around a random centre for each class",
          make_kind_of<SyntheticConfig>};
}

}  // namespace dltrain

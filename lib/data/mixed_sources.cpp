#include "data/mixed_sources.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {
namespace {

SourceMix mix_of(const std::vector<NamedData>& sources) {
  std::vector<DataSource> all;
  for (const NamedData& source : sources) {
    all.push_back({source.name, source.data->size(), source.weight, source.max_epochs});
  }
  return SourceMix(std::move(all));
}

class MixedSources final : public Dataset {
 public:
  explicit MixedSources(std::vector<NamedData> sources)
      : sources_(std::move(sources)), mix_(mix_of(sources_)) {}

  int64_t size() const override { return mix_.samples(); }
  const std::vector<FieldSpec>& fields() const override { return sources_[0].data->fields(); }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    for (size_t i = 0; i < samples.size(); ++i, out += bytes) {
      const auto [source, number] = locate(samples[i]);
      if (first == nullptr) {
        data(source).gather(field, {&number, 1}, out);
        continue;
      }
      // Each source sees its own number of draws, from which it finds its epoch.
      const auto draws = mix_.counts(first->position + static_cast<int64_t>(i))[source];
      data(source).gather_training(field, {&number, 1},
                                   {SourceMix::seed_of(first->seed, source), draws}, out);
    }
  }
  bool is_expensive() const override {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const NamedData& source) { return source.data->is_expensive(); });
  }
  bool has_targets() const override { return sources_[0].data->has_targets(); }
  std::optional<int64_t> uniform_valid_targets() const override {
    const auto all = data(0).uniform_valid_targets();
    for (const NamedData& source : sources_) {
      if (source.data->uniform_valid_targets() != all) return {};
    }
    return all;
  }
  int64_t length(int field, int64_t sample) const override {
    const auto [source, number] = locate(sample);
    return data(source).length(field, number);
  }
  int64_t label_bound() const override {
    int64_t bound = 0;
    for (const NamedData& source : sources_) bound = std::max(bound, source.data->label_bound());
    return bound;
  }
  std::optional<int64_t> id_bound(int field) const override {
    int64_t bound = 0;
    for (const NamedData& source : sources_) {
      const auto one = source.data->id_bound(field);
      if (!one) return {};
      bound = std::max(bound, *one);
    }
    return bound;
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return data(0).tokenizer(); }
  const SourceMix* sources() const override { return &mix_; }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    const auto [source, number] = locate(sample);
    data(source).hash_inputs(number, hasher);
  }
  std::string location_of(int64_t sample) const override {
    const auto [source, number] = locate(sample);
    return data(source).location_of(number);
  }

 private:
  struct Place {
    size_t source;
    int64_t number;  // in the source
  };
  Place locate(int64_t sample) const {
    const size_t source = mix_.source_of(sample);
    return {source, sample - mix_.begin_of(source)};
  }
  const Dataset& data(size_t source) const { return *sources_[source].data; }

  std::vector<NamedData> sources_;
  SourceMix mix_;
};

std::string tokenizer_identity(const Dataset& data) {
  const auto tokenizer = data.tokenizer();
  return tokenizer ? tokenizer->identity() : "";
}

}  // namespace

std::shared_ptr<const Dataset> mix_sources(std::vector<NamedData> sources) {
  const NamedData& first = sources[0];
  for (const NamedData& source : sources) {
    if (source.data->fields() != first.data->fields()) {
      fail(ExitCode::data, "the samples of the sources '{}' and '{}' have different shapes",
           first.name, source.name);
    }
    if (tokenizer_identity(*source.data) != tokenizer_identity(*first.data)) {
      fail(ExitCode::data, "the sources '{}' and '{}' have different tokenizers", first.name,
           source.name);
    }
  }
  return std::make_shared<MixedSources>(std::move(sources));
}

}  // namespace dltrain

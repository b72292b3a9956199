#include "data/masking.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "data/permutation.h"

namespace dltrain {
namespace {

constexpr uint64_t kMaskingStream = random_stream("data.masking");
// Evaluation masks the same tokens for any seed.
constexpr uint64_t kEvaluationSeed = 0x6d61736b;

class MaskedTokens final : public DatasetWrapper {
 public:
  MaskedTokens(std::shared_ptr<const Dataset> windows, const MaskingOptions& options)
      : DatasetWrapper(std::move(windows)), options_(options) {
    length_ = fields()[0].sample.shape[0];
    masked_ =
        std::max<int64_t>(1, std::llround(options.probability * static_cast<double>(length_)));
  }

  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    whole().gather(0, samples, out);
    for (size_t i = 0; i < samples.size(); ++i) {
      mask_field(field, kEvaluationSeed, samples[i], row(out, i));
    }
  }
  void gather_training(int field, std::span<const int64_t> samples, const SampleVisit& first,
                       std::byte* out) const override {
    whole().gather_training(0, samples, first, out);
    for (size_t i = 0; i < samples.size(); ++i) {
      mask_field(field, first.seed, first.position + static_cast<int64_t>(i), row(out, i));
    }
  }
  int64_t valid_targets(int64_t) const override { return masked_; }
  std::optional<int64_t> uniform_valid_targets() const override { return masked_; }

 private:
  int32_t* row(std::byte* out, size_t i) const {
    return reinterpret_cast<int32_t*>(out) + static_cast<int64_t>(i) * length_;
  }

  // Calls use(place) for each chosen place.
  template <typename Use>
  void choose(uint64_t seed, int64_t visit, const int32_t* ids, const Use& use) const {
    const Permutation order(static_cast<uint64_t>(length_), seed ^ kMaskingStream,
                            static_cast<uint64_t>(visit));
    int64_t left = masked_;
    // The second pass chooses among the kept ids.
    for (const bool kept : {false, true}) {
      for (int64_t i = 0; i < length_ && left > 0; ++i) {
        const auto index = static_cast<int64_t>(order(static_cast<uint64_t>(i)));
        if ((ids[index] == options_.kept_id) != kept) continue;
        use(index);
        --left;
      }
    }
  }

  void mask_field(int field, uint64_t seed, int64_t visit, int32_t* ids) const {
    thread_local std::vector<int32_t> original;
    original.assign(ids, ids + length_);
    const bool target = field == target_field();
    if (target) std::fill_n(ids, length_, kIgnoredLabel);
    const auto vocabulary = static_cast<uint64_t>(label_bound());
    choose(seed, visit, original.data(), [&](int64_t index) {
      if (target) {
        ids[index] = original[static_cast<size_t>(index)];
        return;
      }
      // Two random numbers per place: the kind of change and the token.
      const auto element = static_cast<uint64_t>(index) * 2;
      const auto step = static_cast<uint64_t>(visit);
      const float share = random_uniform(seed, kMaskingStream, step, element);
      if (share < 0.8f) {
        ids[index] = options_.mask_id;
      } else if (share < 0.9f) {
        const uint64_t bits = random_bits(seed, kMaskingStream, step, element + 1);
        ids[index] = static_cast<int32_t>(bits * vocabulary >> 32);
      }
    });
  }

  MaskingOptions options_;
  int64_t length_ = 0, masked_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> mask_tokens(std::shared_ptr<const Dataset> windows,
                                           const MaskingOptions& options) {
  return std::make_shared<MaskedTokens>(std::move(windows), options);
}

}  // namespace dltrain

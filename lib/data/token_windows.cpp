#include "data/token_windows.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace dltrain {
namespace {

constexpr uint64_t kOffsetStream = random_stream("data.window_offset");

class TokenWindows final : public Dataset {
 public:
  TokenWindows(std::shared_ptr<const TokenStream> stream, int64_t first, int64_t count,
               const WindowOptions& options, const std::string& what)
      : stream_(std::move(stream)),
        first_(first),
        length_(options.sequence_length),
        document_end_(options.document_end) {
    size_ = (count - 1) / length_;
    if (size_ < 1) {
      throw Error(ExitCode::data,
                  fmt::format("has {} tokens; one sequence of {} and its targets need {}", count,
                              length_, length_ + 1),
                  what);
    }
    if (options.random_offset && size_ > 1) {
      --size_;
      random_offset_ = true;
    }
    const TensorSpec sequence{Shape{length_}, DType::i32};
    fields_ = {{kInputField, sequence}, {kTargetField, sequence}};
    if (document_end_) fields_.insert(fields_.begin() + 1, {kDocumentPositions, sequence});
  }

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const int64_t shift = first != nullptr ? offset({first->seed, first->position + row}) : 0;
      read_window(field, samples[i], shift, reinterpret_cast<int32_t*>(out) + row * length_);
    }
  }
  std::optional<int64_t> uniform_valid_targets() const override { return length_; }
  int64_t label_bound() const override { return stream_->vocab_size(); }
  std::optional<int64_t> id_bound(int field) const override {
    return is_positions(field) ? length_ : stream_->vocab_size();
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return stream_->tokenizer(); }
  std::string location_of(int64_t sample) const override {
    return stream_->location_of(first_ + sample * length_);
  }

 private:
  int64_t offset(const SampleVisit& visit) const {
    if (!random_offset_) return 0;
    const auto epoch = static_cast<uint64_t>(visit.position / size_);
    const uint64_t bits = random_bits(visit.seed, kOffsetStream, epoch, 0);
    return static_cast<int64_t>(bits * static_cast<uint64_t>(length_) >> 32);
  }

  void read_window(int field, int64_t sample, int64_t shift, int32_t* ids) const {
    const int64_t begin = first_ + sample * length_ + shift + (field == target_field() ? 1 : 0);
    stream_->read(begin, length_, ids);
    if (!is_positions(field)) return;
    int32_t next = 0;
    for (int64_t i = 0; i < length_; ++i) {
      const bool ends = ids[i] == *document_end_;
      ids[i] = next++;
      if (ends) next = 0;
    }
  }
  bool is_positions(int field) const { return document_end_ && field == 1; }

  std::shared_ptr<const TokenStream> stream_;
  int64_t first_, length_;
  std::optional<int32_t> document_end_;
  int64_t size_ = 0;
  bool random_offset_ = false;
  std::vector<FieldSpec> fields_;
};

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

  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    whole().read(0, samples, first, out);
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      mask_field(field, first != nullptr ? first->seed : kEvaluationSeed,
                 first != nullptr ? first->position + row : samples[i],
                 reinterpret_cast<int32_t*>(out) + row * length_);
    }
  }
  std::optional<int64_t> uniform_valid_targets() const override { return masked_; }

 private:
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

class ParallelStreams final : public DatasetSubset {
 public:
  // `length`: windows of a stream.
  ParallelStreams(std::shared_ptr<const Dataset> windows, int64_t streams, int64_t length)
      : DatasetSubset(std::move(windows), streams * length, [streams, length](int64_t sample) {
          return sample % streams * length + sample / streams;
        }) {}

  // The epochs of the other dataset are longer if windows are left out.
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    if (first == nullptr) return DatasetSubset::read(field, samples, first, out);
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    int64_t position = first->position;
    for (size_t i = 0; i < samples.size(); ++i, ++position, out += bytes) {
      const SampleVisit visit{first->seed, position / size() * whole().size() + position % size()};
      DatasetSubset::read(field, samples.subspan(i, 1), &visit, out);
    }
  }
};

}  // namespace

std::shared_ptr<const Dataset> token_windows(std::shared_ptr<const TokenStream> stream,
                                             int64_t first, int64_t count,
                                             const WindowOptions& options,
                                             const std::string& what) {
  return std::make_shared<TokenWindows>(std::move(stream), first, count, options, what);
}

std::shared_ptr<const Dataset> mask_tokens(std::shared_ptr<const Dataset> windows,
                                           const MaskingOptions& options) {
  return std::make_shared<MaskedTokens>(std::move(windows), options);
}

std::shared_ptr<const Dataset> parallel_streams(std::shared_ptr<const Dataset> windows,
                                                int64_t streams, const std::string& split) {
  if (windows->size() < streams) {
    fail(ExitCode::data,
         "{} has {} sequences, fewer than the {} streams of `sampling: streams` "
         "(training.global_batch_size)",
         split, windows->size(), streams);
  }
  const int64_t length = windows->size() / streams;
  return std::make_shared<ParallelStreams>(std::move(windows), streams, length);
}

}  // namespace dltrain

#include "data/token_windows.h"

#include "base/error.h"
#include "base/philox.h"

namespace dltrain {
namespace {

constexpr uint64_t kOffsetStream = random_stream("data.window_offset");

class TokenWindows final : public Dataset {
 public:
  TokenWindows(std::shared_ptr<const TokenStream> stream, int64_t first, int64_t count,
               const WindowOptions& options, const std::string& what)
      : stream_(std::move(stream)), first_(first), length_(options.sequence_length) {
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
  }

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    for (size_t i = 0; i < samples.size(); ++i) read(field, samples[i], 0, i, out);
  }
  void gather_training(int field, std::span<const int64_t> samples, const SampleVisit& first,
                       std::byte* out) const override {
    for (size_t i = 0; i < samples.size(); ++i) {
      read(field, samples[i], offset({first.seed, first.position + static_cast<int64_t>(i)}), i,
           out);
    }
  }
  int64_t valid_targets(int64_t) const override { return length_; }
  std::optional<int64_t> uniform_valid_targets() const override { return length_; }
  int64_t label_bound() const override { return stream_->vocab_size(); }
  std::optional<int64_t> id_bound(int) const override { return stream_->vocab_size(); }
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

  void read(int field, int64_t sample, int64_t shift, size_t row, std::byte* out) const {
    const int64_t begin = first_ + sample * length_ + shift + (field == target_field() ? 1 : 0);
    stream_->read(begin, length_,
                  reinterpret_cast<int32_t*>(out) + static_cast<int64_t>(row) * length_);
  }

  std::shared_ptr<const TokenStream> stream_;
  int64_t first_, length_;
  int64_t size_ = 0;
  bool random_offset_ = false;
  std::vector<FieldSpec> fields_;
};

}  // namespace

std::shared_ptr<const Dataset> token_windows(std::shared_ptr<const TokenStream> stream,
                                             int64_t first, int64_t count,
                                             const WindowOptions& options,
                                             const std::string& what) {
  return std::make_shared<TokenWindows>(std::move(stream), first, count, options, what);
}

}  // namespace dltrain

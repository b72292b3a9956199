#include "data/parallel_streams.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {
namespace {

class ParallelStreams final : public DatasetOver {
 public:
  ParallelStreams(std::shared_ptr<const Dataset> windows, int64_t streams)
      : DatasetOver(std::move(windows)), streams_(streams), length_(whole().size() / streams) {}

  int64_t size() const override { return streams_ * length_; }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override {
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    for (const int64_t sample : samples) {
      const int64_t window = window_of(sample);
      whole().gather(field, {&window, 1}, out);
      out += bytes;
    }
  }
  // The other dataset's epochs are longer where windows are left out.
  void gather_training(int field, std::span<const int64_t> samples, const Visit& first,
                       std::byte* out) const override {
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    int64_t position = first.position;
    for (const int64_t sample : samples) {
      const int64_t window = window_of(sample);
      const Visit visit{first.seed, position / size() * whole().size() + position % size()};
      whole().gather_training(field, {&window, 1}, visit, out);
      out += bytes;
      ++position;
    }
  }
  int64_t valid_targets(int64_t sample) const override {
    return whole().valid_targets(window_of(sample));
  }
  int64_t length(int field, int64_t sample) const override {
    return whole().length(field, window_of(sample));
  }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    whole().hash_inputs(window_of(sample), hasher);
  }
  std::string place_of(int64_t sample) const override {
    return whole().place_of(window_of(sample));
  }

 private:
  int64_t window_of(int64_t sample) const {
    return sample % streams_ * length_ + sample / streams_;
  }

  int64_t streams_, length_;  // length_: windows of a stream
};

}  // namespace

std::shared_ptr<const Dataset> parallel_streams(std::shared_ptr<const Dataset> windows,
                                                int64_t streams, const std::string& split) {
  if (windows->size() < streams) {
    fail(ExitCode::data,
         "{} has {} sequences, which are fewer than the {} streams of `sampling: streams` "
         "(training.global_batch_size)",
         split, windows->size(), streams);
  }
  return std::make_shared<ParallelStreams>(std::move(windows), streams);
}

}  // namespace dltrain

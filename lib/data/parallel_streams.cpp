#include "data/parallel_streams.h"

namespace dltrain {
namespace {

class ParallelStreams final : public DatasetSubset {
 public:
  // `length`: windows of a stream.
  ParallelStreams(std::shared_ptr<const Dataset> windows, int64_t streams, int64_t length)
      : DatasetSubset(std::move(windows), streams * length, [streams, length](int64_t sample) {
          return sample % streams * length + sample / streams;
        }) {}

  // The epochs of the other dataset are longer if windows are left out.
  void gather_training(int field, std::span<const int64_t> samples, const SampleVisit& first,
                       std::byte* out) const override {
    const size_t bytes = fields()[static_cast<size_t>(field)].sample.bytes();
    int64_t position = first.position;
    for (size_t i = 0; i < samples.size(); ++i, ++position, out += bytes) {
      const SampleVisit visit{first.seed, position / size() * whole().size() + position % size()};
      DatasetSubset::gather_training(field, samples.subspan(i, 1), visit, out);
    }
  }
};

}  // namespace

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

#include "data/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "data/classes.h"

namespace dltrain {
namespace {

constexpr uint64_t kClassStream = random_stream("data.sampler.class");

}  // namespace

ClassLists samples_by_class(const Dataset& dataset) {
  const TensorSpec& target = dataset.fields().back().sample;
  if (target.shape.elements() != 1) {
    fail(ExitCode::data, "balanced sampling needs one label per sample; targets are {}",
         to_string(target));
  }
  ClassLists lists(static_cast<size_t>(std::max<int64_t>(dataset.label_bound(), 2)));
  if (has_one_label(dataset)) {
    for_each_sample<int32_t>(dataset, dataset.target_field(), [&](int64_t sample, auto labels) {
      if (labels[0] >= 0) lists[static_cast<size_t>(labels[0])].push_back(sample);
    });
  } else {
    for_each_sample<float>(dataset, dataset.target_field(), [&](int64_t sample, auto targets) {
      if (std::isnan(targets[0])) return;
      if (targets[0] != 0 && targets[0] != 1) {
        throw Error(
            ExitCode::data,
            fmt::format("balanced sampling needs classes; the target {} is not 0 or 1", targets[0]),
            dataset.location_of(sample));
      }
      lists[static_cast<size_t>(targets[0])].push_back(sample);
    });
  }
  std::erase_if(lists, [](const auto& list) { return list.empty(); });
  if (lists.empty()) fail(ExitCode::data, "balanced sampling: no sample has a label");
  return lists;
}

int64_t Sampler::in_bucket(int64_t position) {
  const int64_t size = buckets_->global_batch(), step = position / size;
  const int64_t epoch = step / buckets_->batches();
  if (batches_.empty() || epoch != epoch_) {
    buckets_->fill_order(epoch, batches_);
    epoch_ = epoch;
  }
  return batches_[static_cast<size_t>(buckets_->batch(step) * size + position % size)];
}

int64_t Sampler::balanced(int64_t position) const {
  const auto classes = static_cast<int64_t>(classes_->size());
  const int64_t turn = position / classes;
  const auto which =
      Permutation(static_cast<uint64_t>(classes), seed_ ^ kClassStream,
                  static_cast<uint64_t>(turn))(static_cast<uint64_t>(position % classes));
  const std::vector<int64_t>& list = (*classes_)[which];
  const auto n = static_cast<int64_t>(list.size());
  // Each class and round has its own order.
  const uint64_t seed = seed_ ^ (kClassStream * (2 * which + 1));
  const Permutation order(static_cast<uint64_t>(n), seed, static_cast<uint64_t>(turn / n));
  return list[order(static_cast<uint64_t>(turn % n))];
}

}  // namespace dltrain

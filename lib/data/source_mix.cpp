#include "data/source_mix.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr int64_t kUnlimited = INT64_MAX;
constexpr double kWeightUnits = 1099511627776.0;  // 2^40
__extension__ using Wide = __int128;

}  // namespace

SourceMix::SourceMix(std::vector<DataSource> sources) : sources_(std::move(sources)) {
  check_internal(!sources_.empty() && sources_.size() <= kMaxSources, "{} sources",
                 sources_.size());
  double total = 0;
  for (const DataSource& source : sources_) total += source.weight;
  begins_.push_back(0);
  for (const DataSource& source : sources_) {
    begins_.push_back(begins_.back() + source.samples);
    const double units = std::round(source.weight / total * kWeightUnits);
    weights_.push_back(total > 0 ? std::max<int64_t>(1, static_cast<int64_t>(units))
                                 : source.samples);
    const double draws = std::round(source.max_epochs * static_cast<double>(source.samples));
    const bool limited = source.max_epochs > 0 && draws < 0x1p62;
    limits_.push_back(limited ? std::max<int64_t>(1, static_cast<int64_t>(draws)) : kUnlimited);
    limit_ = limit_ > kUnlimited - limits_.back() ? kUnlimited : limit_ + limits_.back();
  }
}

size_t SourceMix::source_of(int64_t sample) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), sample);
  return static_cast<size_t>(after - begins_.begin()) - 1;
}

size_t SourceMix::next(const Counts& counts) const {
  size_t best = sources_.size();
  for (size_t k = 0; k < sources_.size(); ++k) {
    if (counts[k] == limits_[k]) continue;
    if (best == sources_.size() || static_cast<Wide>(2 * counts[k] + 1) * weights_[best] <
                                       static_cast<Wide>(2 * counts[best] + 1) * weights_[k]) {
      best = k;
    }
  }
  return best;
}

// Starts with draws that certainly come before the position. Let T be the key of the last one
// before it, S the sum of the n weights and p the position. The keys up to T number at least p, and
// floor(w T + 1/2) of them are of a source with weight w, so T >= (2 p - n) / (2 S), and all
// smaller keys come before the position. A source with a limit below their number is used up: it
// leaves both sums. Then at most about 3/2 n draws are left to make one by one.
SourceMix::Counts SourceMix::counts(int64_t position) const {
  Counts counts{};
  position = std::min(position, limit_);
  int64_t rest = position, weights = 0;
  auto active = static_cast<int64_t>(sources_.size());
  for (const int64_t weight : weights_) weights += weight;
  for (bool again = true; again;) {
    again = false;
    for (size_t k = 0; k < sources_.size(); ++k) {
      if (counts[k] == limits_[k]) continue;
      // The number of j with (2 j + 1) S < w (2 p - n).
      const Wide bound = static_cast<Wide>(weights_[k]) * (2 * static_cast<Wide>(rest) - active);
      const int64_t odd = bound > weights ? static_cast<int64_t>((bound - 1) / weights) : 0;
      counts[k] = std::min(limits_[k], (odd + 1) / 2);
      if (counts[k] < limits_[k]) continue;
      rest -= counts[k];
      weights -= weights_[k];
      --active;
      again = true;
      break;
    }
  }
  int64_t drawn = 0;
  for (size_t k = 0; k < sources_.size(); ++k) drawn += counts[k];
  for (; drawn < position; ++drawn) ++counts[next(counts)];
  return counts;
}

SourceMix::Draw SourceMix::at(int64_t position) const {
  // Loaders read ahead of the last step.
  const Counts before = counts(position % limit_);
  const size_t source = next(before);
  return {source, before[source]};
}

std::vector<double> SourceMix::epochs(int64_t position) const {
  const Counts drawn = counts(position);
  std::vector<double> epochs;
  for (size_t k = 0; k < sources_.size(); ++k) {
    epochs.push_back(static_cast<double>(drawn[k]) / static_cast<double>(sources_[k].samples));
  }
  return epochs;
}

}  // namespace dltrain

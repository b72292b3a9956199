// The order in which training draws from several sources of data.
//
// Sample j of a source with weight w has the key (2 j + 1) / (2 w), and the samples of all sources
// are drawn by ascending keys (the divisor method of Sainte-Laguë, 1910). After any number of
// samples each source has its share within about one sample. A source that is used up
// (`max_epochs`) drops out, and the others share its part by their weights. The position of any
// sample follows from integers only, so a resumed run and another layout of ranks see the same
// order on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dltrain {

struct DataSource {
  std::string name;
  int64_t samples = 0;    // at least 1
  double weight = 0;      // relative to those of the others; all 0: the number of samples
  double max_epochs = 0;  // 0: no limit
};

inline constexpr size_t kMaxSources = 64;

class SourceMix {
 public:
  using Counts = std::array<int64_t, kMaxSources>;  // one for each source, then zeros
  struct Draw {
    size_t source = 0;
    int64_t number = 0;  // of the draws from this source, from 0
  };

  // 1 to kMaxSources sources.
  explicit SourceMix(std::vector<DataSource> sources);

  const std::vector<DataSource>& sources() const { return sources_; }
  // The sources form one sequence of samples. Returns the first sample of a source, and the source
  // of a sample.
  int64_t begin_of(size_t source) const { return begins_[source]; }
  size_t source_of(int64_t sample) const;
  int64_t samples() const { return begins_.back(); }

  // The number of draws until all sources are used up; INT64_MAX without a limit.
  int64_t limit() const { return limit_; }
  // The source that is drawn from at a position below limit().
  Draw at(int64_t position) const;
  // The number of draws from each source before a position.
  Counts counts(int64_t position) const;
  // The epochs of each source before a position.
  std::vector<double> epochs(int64_t position) const;
  // The seed of a source's own order and random changes.
  static uint64_t seed_of(uint64_t seed, size_t source) {
    return seed + source * 0x9e3779b97f4a7c15;
  }

 private:
  // The source with the smallest next key.
  size_t next(const Counts& counts) const;

  std::vector<DataSource> sources_;
  std::vector<int64_t> begins_;   // of each source; then the number of all samples
  std::vector<int64_t> weights_;  // at most 2^40
  std::vector<int64_t> limits_;   // of draws
  int64_t limit_ = 0;
};

}  // namespace dltrain

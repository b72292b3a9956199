// Reports on a dataset as evaluation sees it: counts, statistics and suspicious samples. Reads
// every sample once; used by `dltrain data inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

struct ChannelStatistics {
  double mean = 0, std = 0, least = 0, greatest = 0;
};

struct FieldReport {
  FieldSpec field;
  // The statistics of each channel of an f32 field (the innermost dimension if it has at most 64
  // elements, otherwise one for all). Empty for other fields.
  std::vector<ChannelStatistics> channels;
};

struct Outlier {
  int64_t sample;
  std::string reason;
};

struct SplitReport {
  int64_t samples = 0;
  std::vector<FieldReport> fields;
  std::vector<int64_t> labels;  // the count of each; empty for targets that are not one label
  int64_t ignored = 0;          // samples with kIgnoredLabel
  // Samples that cannot be read, with the error message.
  std::vector<std::pair<int64_t, std::string>> broken;
  // Pairs of a sample and an earlier one with the same inputs.
  std::vector<std::pair<int64_t, int64_t>> duplicates;
  int64_t contradictions = 0;  // duplicates with another target
  // Constant samples and those with a distant mean or standard deviation, the farthest first.
  std::vector<Outlier> outliers;
  std::vector<std::string> hashes;  // of the inputs of each sample; empty for broken ones
};

struct ColumnReport {
  ColumnSchema column;
  // These are for numbers:
  double mean = 0, std = 0, least = 0, greatest = 0;
  int64_t empty = 0;                 // cells of numbers; categories count theirs as one more
  std::vector<int64_t> counts = {};  // of categories; where they are ids, too
};

// Reports on the columns of a table that was opened without OpenOptions::fit. Empty for other data,
// and for a table whose inputs transforms resize.
std::vector<ColumnReport> inspect_columns(const Dataset& table);

// Reads with `threads`; the report does not depend on their number.
SplitReport inspect(const Dataset& dataset, int threads);

// Returns pairs of a sample of `eval` and one of `train` with the same inputs.
std::vector<std::pair<int64_t, int64_t>> find_overlap(const SplitReport& train,
                                                      const SplitReport& eval);

}  // namespace dltrain

// Classes and labels of a dataset: equal names have equal labels in all splits and for a trained
// model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

// Relabels the samples so that label i is the class names[i]. Data without class names gets these
// names and keeps its labels. Returns `data` if nothing changes, if `names` is empty, or if the
// targets are not one label each. Throws Error(data) with the place of a sample whose class is not
// in `names`.
std::shared_ptr<const Dataset> match_classes(std::shared_ptr<const Dataset> data,
                                             const std::vector<std::string>& names);

// Returns true if each sample has one label as its target.
bool has_one_label(const Dataset& data);

// Holds out round(fraction * n) of the n samples of each class for evaluation, at least one but not
// all: random ones, a function of `seed`, or the last ones if there is no seed. Both splits keep
// the order of `whole`. A class of one sample stays in training. Data without one label per sample
// is treated as one class, as are random splits with fewer samples than classes. Throws Error(data)
// if a split would be empty.
DataSplit split_off_eval_by_class(std::shared_ptr<const Dataset> whole, double eval_fraction,
                                  std::optional<uint64_t> seed = {});

// Returns the number of samples of each class: count_labels() of data with one label per sample,
// otherwise nothing. Reads every target.
std::vector<int64_t> count_classes(const Dataset& data);

// Describes in one sentence the classes that one split has and the other lacks, if the probability
// of this is below 1 % for a random split; otherwise returns an empty string. The arguments are
// count_classes() of the splits and the names of the classes.
std::string imbalanced_classes(const std::vector<int64_t>& train, const std::vector<int64_t>& eval,
                               const std::vector<std::string>& names);

// Describes in one sentence the labels that no training sample has, as when labels count from 1;
// otherwise returns an empty string. The argument is count_classes() of data whose classes have no
// names.
std::string unused_labels(const std::vector<int64_t>& train);

// Replaces the ignored label of a loss (ignore_index) by kIgnoredLabel. Reads all targets once,
// unless they are ids of a known vocabulary.
std::shared_ptr<const Dataset> ignore_label(std::shared_ptr<const Dataset> whole, int32_t label);

// Counts each label below label_bound(). Throws Error(data) for labels above 2²⁴.
std::vector<int64_t> count_labels(const Dataset& dataset);

// Converts the labels 0 and 1 to f32, for binary losses; kIgnoredLabel becomes NaN. Throws
// Error(data) for data with other labels.
std::shared_ptr<const Dataset> labels_as_targets(std::shared_ptr<const Dataset> whole);

}  // namespace dltrain

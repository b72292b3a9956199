// Classes of a dataset: the same names have the same labels in all splits, and for a trained model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

// The same samples with the labels that `names` gives their classes: label i is the class names[i].
// Data without names of its own is named, its labels stay. `data` itself where nothing differs, and
// where `names` is empty or the targets are not one label each. Throws Error(data), with the place
// of a sample, for a class with samples that is not among `names`.
std::shared_ptr<const Dataset> match_classes(std::shared_ptr<const Dataset> data,
                                             const std::vector<std::string>& names);

// Whether the targets are one label a sample.
bool has_one_label(const Dataset& data);

// Holds round(fraction * n) of the n samples of each class out for evaluation, at least one, but
// never all: random ones, a function of `seed`, or without it the last. Both splits keep the order
// of `whole`. A class of one sample stays in training. Data without one label a sample is taken as
// of one class, and so are random samples where there are fewer than classes. Throws Error(data)
// where one of the two would be empty.
DataSplit split_off_eval_by_class(std::shared_ptr<const Dataset> whole, double eval_fraction,
                                  std::optional<uint64_t> seed = {});

// What is odd about the classes of two splits, as one sentence: classes of one that the other has
// none of, where that would come by chance less than once in a hundred random splits; empty where
// nothing is. Reads every target. Data without one label a sample is not looked at.
std::string uneven_classes(const Dataset& train, const Dataset& eval);

}  // namespace dltrain

// Files of predictions: one row a sample, in file order; where a model tells classes apart at
// several places of a sample, such as the next token of each token, one row a place.
//
// CSV, with a header:
//   classes   sample,source,target,class,probability[,class_2,probability_2…]
//   binary    sample,source,target[_i…],probability[_i…]
//   numbers   sample,source,target[_i…],output[_i…]
// JSONL, one object a line:
//   classes   {"sample", "source", "target", "class", "probability", "top": [{"class",
//             "probability"}…]}
//   binary    {"sample", "source", "target", "probability"}
//   numbers   {"sample", "source", "target", "output"}; several targets and outputs are lists
// `source` is where the data has the sample ("digits.csv.gz:17"); `class` and `target` are names
// where the data names its classes, texts where they are tokens, else numbers; numbers have 9
// significant digits. Data without targets gives files without `target`; rows of places have
// `place`, counted from 0, behind `source`.
#pragma once

#include <filesystem>
#include <string>

#include "train/predict.h"

namespace dltrain {

enum class PredictionFormat : uint8_t { csv, jsonl };

// By the name of the file: .csv, .jsonl or .json. Throws Error(usage) for another.
PredictionFormat prediction_format(const std::filesystem::path& path);

// `top`: how many classes, best first, at least 1; throws Error(usage) for more than there are. The
// samples are the first of `dataset`.
std::string prediction_text(const Predictions& predictions, const Dataset& dataset,
                            PredictionFormat format, int64_t top);

}  // namespace dltrain

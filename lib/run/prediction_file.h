// Files of predictions: one row for each sample, in file order; for models that classify several
// positions of a sample, such as the next token of each token, one row for each position; of texts
// only for those whose targets count.
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
//
// `source` is the place of the sample in the data ("digits.csv.gz:17"); `class` and `target` are
// names if the classes have names, texts of tokens, else numbers; numbers have 9 significant
// digits. A binary loss with one output has two classes, 0 and 1; `binary` is for several outputs.
// Without targets there is no `target`; rows of positions have `place`, counted from 0, after
// `source`.
#pragma once

#include <filesystem>
#include <string>

#include "run/predict.h"

namespace dltrain {

enum class PredictionFormat : uint8_t { csv, jsonl };

// Returns the format by the name of the file: .csv, .jsonl or .json. Throws Error(usage) for
// others.
PredictionFormat prediction_format(const std::filesystem::path& path);

// As prediction_text(), only of these positions, and with the loss (CSV: the first column).
std::string suspect_text(const Predictions& predictions, const Dataset& dataset,
                         const std::vector<Suspect>& suspects, PredictionFormat format);

// `top`: the number of classes in each row, best first, at least 1; throws Error(usage) if the
// model has fewer. The samples are the first of `dataset`.
std::string prediction_text(const Predictions& predictions, const Dataset& dataset,
                            PredictionFormat format, int64_t top);

}  // namespace dltrain

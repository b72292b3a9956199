// Weights mean the ids of one tokenizer, and data may have been read with another: both are right
// alone, and every id may fit.
#pragma once

#include <string>

#include "data/dataset.h"
#include "nn/model.h"

namespace dltrain {

// Where the weights of model.init_from lie beside a tokenizer (a folder of Hugging Face, a run or a
// checkpoint of one): a sentence for the log that says how the data's differs from it, with the
// first id that means something else. "": it does not, or there is nothing to compare.
std::string other_tokenizer(const ModelConfig& model, const Dataset& data);

}  // namespace dltrain

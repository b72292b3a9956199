// Samples of text in a terminal, for `dltrain data show`.
#pragma once

#include <string>
#include <vector>

#include "data/loader.h"

namespace dltrain {

// Returns true if the samples are sequences of tokens.
bool holds_text(const std::vector<FieldSpec>& fields);

// The samples of a batch with these fields: inputs, decoded where `tokenizer` is not null and as
// ids otherwise, and the targets that the loss counts, with `…` for those between that it leaves
// out. `masked`: input and target have the same places; counted ones are in brackets in the
// input.
std::string describe_texts(const std::vector<FieldSpec>& fields, const Batch& batch,
                           const Tokenizer* tokenizer, bool masked);

}  // namespace dltrain

// All keys that a described struct can have, at every depth: for "did you mean
// training.max_steps?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"

namespace dltrain {

struct IndexedKey {
  std::string name;
  std::string path;  // "training.global_batch_size"; empty inside lists
  std::vector<std::string> known_as;
  bool is_path = false;
  std::string kind = {};  // the kind that has the key; empty: none
};

// The keys of one object, in order (paths are the names). Pass a default object, because its
// members may change.
std::vector<IndexedKey> own_keys(ObjectRef object);
// The keys of the object and everything below it, with every kind of every table once.
std::vector<IndexedKey> all_keys(ObjectRef object);

// Returns the path of the only key elsewhere that is named `wrong` or known as it, or an empty
// path.
std::string find_in_other_sections(std::string_view wrong, const std::vector<IndexedKey>& keys);
// Returns the kinds whose key at `path` is named `wrong` or known as it.
std::vector<std::string> kinds_with(std::string_view path, std::string_view wrong,
                                    const std::vector<IndexedKey>& keys);

}  // namespace dltrain

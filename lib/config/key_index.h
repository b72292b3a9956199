// All keys that a described struct can hold, at every depth: for "did you mean
// training.max_steps?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"

namespace dltrain {

struct IndexedKey {
  std::string name;
  std::string path;  // "training.global_batch_size"; empty inside lists and maps of free names
  std::vector<std::string> known_as;
  bool is_path = false;
  std::string kind = {};  // that has the key; empty: no kind's own key
};

// The keys of one object alone, in order (paths are the names). The object's members may be
// touched: pass a default object.
std::vector<IndexedKey> own_keys(ObjectRef object);
// The keys of the object and everything below it, every kind of every table included once.
std::vector<IndexedKey> all_keys(ObjectRef object);

// The path of the key elsewhere that `wrong` means (by its name, or by a name it is known as);
// empty where no key or more than one is meant.
std::string find_elsewhere(std::string_view wrong, const std::vector<IndexedKey>& keys);
// The kinds whose key at `path` has the name `wrong` or is known as it; none where the key belongs
// to no kind.
std::vector<std::string> kinds_with(std::string_view path, std::string_view wrong,
                                    const std::vector<IndexedKey>& keys);

}  // namespace dltrain

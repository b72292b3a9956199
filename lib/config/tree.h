// ConfigNode: a configuration document as a plain value, before anything is known of its keys.
//
// Files, `extends`, `-s` overrides and environment variables all work on this tree; the binder then
// reads it into typed structs. Each node and each key remembers where it was written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/place.h"

namespace dltrain {

struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  // How a scalar was written decides what it may be: a quoted "3" is text, never a number. A quoted
  // scalar that is exactly one ${REFERENCE} may be either (inside { } YAML demands the quotes).
  enum class Style { plain, quoted, either };
  struct Key {
    std::string text;
    Place place;
    // Of a key that stood beside another `type`, which -s has replaced: that type. The new one may
    // have no such key.
    std::string of_type = {};
  };

  Kind kind = Kind::null;
  Style style = Style::plain;
  std::string text;               // of a scalar
  std::vector<ConfigNode> items;  // of a list, or the values of a map
  std::vector<Key> keys;          // of a map: keys[i] belongs to items[i]; no key twice
  Place place;

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }

  // The value of `key` in a map; null where there is none or this is no map.
  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  // Sets or replaces.
  void set(Key key, ConfigNode value);
  void erase(std::string_view key);

  static ConfigNode make_map(Place place);
};

// Lays `over` upon `base`: maps merge key by key at any depth, everything else replaces. A map that
// chooses another kind (its `type` differs from the one below) replaces the old map as a whole: the
// keys of an adamw mean nothing to an sgd, and its tuned values are wrong for it.
void merge_into(ConfigNode& base, ConfigNode over);

// "a map", "a list", "the text 'abc'", "the number 3", "nothing": what a message says was found.
std::string describe_found(const ConfigNode& node);

}  // namespace dltrain

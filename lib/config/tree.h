// ConfigNode: a configuration document as a tree, before it is bound to structs.
//
// Files, `extends`, `-s` overrides and environment variables all change this tree; the binder then
// reads it into structs. Each node and each key has its place in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/source_location.h"

namespace dltrain {

struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  // The style decides the type of a scalar: a quoted "3" is text, never a number. A quoted scalar
  // that is exactly one ${REFERENCE} may be either (inside { } YAML needs the quotes).
  enum class Style { plain, quoted, either };
  struct Key {
    std::string text;
    SourceLocation location;
    // The `type` that the key was written for, if -s has replaced that type. The new type may have
    // no such key.
    std::string of_type = {};
    bool of_scalar = false;  // `type` in {type: x}, which -s has made of the scalar x
  };

  Kind kind = Kind::null;
  Style style = Style::plain;
  std::string text;               // of a scalar
  std::vector<ConfigNode> items;  // of a list, or the values of a map
  std::vector<Key> keys;          // of a map: keys[i] belongs to items[i]; no key twice
  SourceLocation location;

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_list() const { return kind == Kind::list; }
  bool is_map() const { return kind == Kind::map; }

  // Returns the value of `key` in a map, or null if there is none or this is not a map.
  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  // Sets or replaces.
  void set(Key key, ConfigNode value);
  void erase(std::string_view key);

  static ConfigNode make_map(SourceLocation location);
  static ConfigNode make_scalar(std::string text, SourceLocation location,
                                Style style = Style::plain);
};

// Merges `over` into `base`: maps merge key by key at any depth, everything else is replaced. A map
// with another `type` replaces the old map, because the keys and values of an adamw do not suit an
// sgd.
void merge_into(ConfigNode& base, ConfigNode over);

// Describes a node in messages: "a map", "a list", "the text 'abc'", "the number 3", "nothing".
std::string describe_found(const ConfigNode& node);

}  // namespace dltrain

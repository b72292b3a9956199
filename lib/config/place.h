// Where a piece of configuration was written, so that every later stage (binding, shape inference,
// planning) can point at it: `exp.yaml:12:5: error: …` with the line and a caret.
//
// A Place shares ownership of the text it points into; it may outlive the tree it came from, and is
// cheap to copy. Places are immutable once made and may be read from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

// One text that configuration was read from: a file, or one `-s key=value` argument.
struct Source {
  std::string name;  // as messages print it: "exp.yaml", or "-s optimizer.lr=3"
  std::string text;  // the whole text, UTF-8
  bool is_override = false;
  bool is_built_in = false;  // an architecture of the program: nobody can edit it
};

struct Place {
  std::shared_ptr<const Source> source;  // null: nowhere (a default that no text gave)
  size_t offset = 0;                     // byte offset into source->text
  size_t length = 1;  // bytes to underline, at least 1, never past the line's end
  std::string path;   // "model.layers[2]"; set for objects and values by the parser
  // Of text that was copied from a definition to where it is used (a block of layers): the use, and
  // what is used: "block 'basic'".
  std::shared_ptr<const Place> used_at = nullptr;
  std::string used_as = {};
  // Of a value that stands for an argument of a block or an architecture: "model.num_heads".
  std::string argument = {};

  // The place that a person can edit: of a built-in architecture, where it is used.
  const Place& editable() const;
  bool known() const { return source != nullptr; }
  // 1-based; columns count characters (code points), as editors do. 0 where the place is unknown.
  int line() const;
  int column() const;
};

// Base of every configuration object that later stages want to talk about. The parser fills it.
struct Located {
  Place place;  // of the object's map

  // Where the value of `key` was written; the object's own place where the key was not given.
  const Place& place_of(std::string_view key) const;
  // Whether the person wrote `key` (a value equal to the default counts as given).
  bool given(std::string_view key) const;

  struct KeyPlace {
    std::string key;
    Place place;
  };
  std::vector<KeyPlace> given_keys;
};

// "exp.yaml:7:13", "-s optimizer.lr=3", or the key path where the text is unknown.
std::string to_string(const Place& place);

// The whole diagnostic, one or three lines without a trailing newline:
//   exp.yaml:7:13: error: MESSAGE
//       7 | optimizer: {learning_rat: 1e-3}
//         |             ^~~~~~~~~~~~
std::string describe_place(const Place& place, std::string_view message,
                           std::string_view severity = "error");

}  // namespace dltrain

// The place of a piece of configuration in a text, so that every later stage (binding, shape
// inference, planning) can report it: `exp.yaml:12:5: error: …` with the line and a caret.
//
// A SourceLocation shares ownership of the text it points into; it may outlive the tree it came
// from. Several threads may read one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

// A text of configuration: a file, or one `-s key=value` argument.
struct Source {
  std::string name;  // in messages: "exp.yaml", or "-s optimizer.lr=3"
  std::string text;  // the whole text, UTF-8
  bool is_override = false;
  bool is_built_in = false;  // an architecture that is built into the program
};

struct SourceLocation {
  std::shared_ptr<const Source> source;  // null: unknown (a default value)
  size_t offset = 0;                     // byte offset into source->text
  size_t length = 1;  // bytes to underline, at least 1, never past the line's end
  std::string path;   // "model.layers[2]"; set for objects and values by the parser
  // For text of a definition (a block of layers): the place where the definition is used, and its
  // name: "block 'basic'".
  std::shared_ptr<const SourceLocation> used_at = nullptr;
  std::string used_as = {};
  // For a value that replaces an argument of a block or an architecture: "model.num_heads".
  std::string argument = {};

  // The place that a user can edit: for a built-in architecture, the place of its use.
  const SourceLocation& editable() const;
  bool known() const { return source != nullptr; }
  bool is_override() const { return source && source->is_override; }
  bool is_same_place(const SourceLocation& other) const {
    return source == other.source && offset == other.offset;
  }
  // 1-based; columns count characters (code points), as editors do. 0 if the place is unknown.
  int line() const;
  int column() const;
};

// Base of configuration objects that later stages report problems about. The parser fills it.
struct ConfigObject {
  SourceLocation location;  // of the object's map

  // Returns the place of the value of `key`, or of the object if the key was not given.
  const SourceLocation& location_of(std::string_view key) const;
  // Returns whether `key` was written (also with a value equal to the default).
  bool given(std::string_view key) const;

  struct KeyLocation {
    std::string key;
    SourceLocation location;
  };
  std::vector<KeyLocation> given_keys;
};

// "exp.yaml:7:13", "-s optimizer.lr=3", or the key path if the text is unknown.
std::string to_string(const SourceLocation& location);

// Returns the complete diagnostic, one or three lines without a trailing newline:
//   exp.yaml:7:13: error: MESSAGE
//       7 | optimizer: {learning_rat: 1e-3}
//         |             ^~~~~~~~~~~~
std::string describe_location(const SourceLocation& location, std::string_view message,
                              std::string_view severity = "error");

}  // namespace dltrain

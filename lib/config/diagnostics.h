// Diagnostics: all errors found in a configuration, reported together.
//
// Every stage adds to one Diagnostics and continues as far as possible; throw_if_any() then throws
// one ConfigError (mostly with exit code `usage`) whose text is the list of diagnostics in the
// order of the text.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/source_location.h"

namespace dltrain {

struct Diagnostic {
  SourceLocation location;
  std::string message;    // one line, no place, no "error:"
  bool is_cause = false;  // see add_cause()
};

class Diagnostics {
 public:
  // Keeps equal messages at equal places once, like problems of a definition that is used at
  // several places.
  void add(const SourceLocation& location, std::string message);
  template <typename Arg, typename... Args>
  void add(const SourceLocation& location, fmt::format_string<Arg, Args...> text, Arg&& arg,
           Args&&... args) {
    add(location, fmt::format(text, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }
  // Adds a warning, which does not count as a problem.
  void warn(std::string message) { warnings_.push_back(std::move(message)); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Like add(), but leaves out later problems at the same place, which are consequences.
  void add_cause(const SourceLocation& location, std::string message);
  template <typename Arg, typename... Args>
  void add_cause(const SourceLocation& location, fmt::format_string<Arg, Args...> text, Arg&& arg,
                 Args&&... args) {
    add_cause(location, fmt::format(text, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }
  // Adds all of `other`.
  void append(const Diagnostics& other);
  // Adds the problems of `other` at places that have no problem yet.
  void add_at_new_locations(const Diagnostics& other);
  // Adds a problem at the value of `key` in `object`, or at the object if the key was not given.
  void add(const ConfigObject& object, std::string_view key, std::string message) {
    add(object.location_of(key), std::move(message));
  }
  template <typename Arg, typename... Args>
  void add(const ConfigObject& object, std::string_view key, fmt::format_string<Arg, Args...> text,
           Arg&& arg, Args&&... args) {
    add(object.location_of(key), text, std::forward<Arg>(arg), std::forward<Args>(args)...);
  }

  bool empty() const { return reported_ == 0; }
  // Returns the number of calls of add(), which shows whether a step has found problems.
  size_t reported() const { return reported_; }
  // Problems beyond kMaxKept are only counted, which limits the work on hostile input.
  bool full() const { return diagnostics_.size() >= kMaxKept; }
  const std::vector<Diagnostic>& all() const { return diagnostics_; }

  // All diagnostics, sorted by source and position; at most kMaxShown, then "… and N more".
  std::string describe() const;
  // Throws ConfigError if there are problems.
  void throw_if_any(ExitCode code = ExitCode::usage) const;

  static constexpr size_t kMaxShown = 50;
  static constexpr size_t kMaxKept = 300;

 private:
  std::vector<Diagnostic> diagnostics_;
  std::vector<std::string> warnings_;
  size_t reported_ = 0;
  size_t dropped_ = 0;  // beyond kMaxKept
};

// Thrown for an invalid configuration. what() is the complete text to print, without a prefix:
// every diagnostic contains its place and the word "error:".
class ConfigError : public Error {
 public:
  explicit ConfigError(Diagnostics diagnostics, ExitCode code = ExitCode::usage)
      : Error(code, diagnostics.describe()), diagnostics_(std::move(diagnostics)) {}

  const Diagnostics& diagnostics() const { return diagnostics_; }

 private:
  Diagnostics diagnostics_;
};

// Throws a ConfigError with one problem: at `location`, or at the value of `key` in `object`.
template <typename... Args>
[[noreturn]] void fail_at(const SourceLocation& location, fmt::format_string<Args...> text,
                          Args&&... args) {
  Diagnostics diagnostics;
  diagnostics.add(location, fmt::format(text, std::forward<Args>(args)...));
  throw ConfigError(std::move(diagnostics));
}
template <typename... Args>
[[noreturn]] void fail_at(const ConfigObject& object, std::string_view key,
                          fmt::format_string<Args...> text, Args&&... args) {
  fail_at(object.location_of(key), text, std::forward<Args>(args)...);
}

}  // namespace dltrain

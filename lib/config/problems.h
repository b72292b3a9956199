// Problems: all mistakes found in a configuration, reported together.
//
// Every stage adds to one Problems and goes on as far as it sensibly can; throw_if_any() then
// raises one ConfigError (mostly of exit code `usage`) whose text is the list of diagnostics in the
// order of the text.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/place.h"

namespace dltrain {

struct Problem {
  Place place;
  std::string message;    // one line, no place, no "error:"
  bool is_cause = false;  // see add_cause()
};

class Problems {
 public:
  // Equal message at an equal place is kept once, as are the mistakes of a definition that is used
  // at several places.
  void add(const Place& place, std::string message);
  // What is worth a warning: it stops nothing, and empty() stays true.
  void warn(std::string message) { warnings_.push_back(std::move(message)); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // As add(); later problems at the very same place are then taken for consequences and left out.
  void add_cause(const Place& place, std::string message);
  // Adds all of `other`.
  void append(const Problems& other);
  // Adds those of `other` at places where nothing was wrong so far.
  void add_new_places(const Problems& other);
  // At the value of `key` inside `object` (or at the object, where the key was not given).
  void add(const Located& object, std::string_view key, std::string message) {
    add(object.place_of(key), std::move(message));
  }

  bool empty() const { return reported_ == 0; }
  // How often add() was called: tells whether a step found anything, repetitions included.
  size_t reported() const { return reported_; }
  // Problems kept; from kMaxKept on they are only counted, which bounds the work on hostile input.
  size_t size() const { return problems_.size(); }
  bool full() const { return problems_.size() >= kMaxKept; }
  const std::vector<Problem>& all() const { return problems_; }

  // All diagnostics, sorted by source and position; at most kMaxShown, then "… and N more".
  std::string describe() const;
  // Throws ConfigError when there is anything to report.
  void throw_if_any(ExitCode code = ExitCode::usage) const;

  static constexpr size_t kMaxShown = 50;
  static constexpr size_t kMaxKept = 300;

 private:
  std::vector<Problem> problems_;
  std::vector<std::string> warnings_;
  size_t reported_ = 0;
  size_t dropped_ = 0;  // beyond kMaxKept
};

// What a wrong configuration ends in. what() is the complete text to print: every diagnostic
// already carries its place and the word "error:", so print it as it is, without a prefix.
class ConfigError : public Error {
 public:
  explicit ConfigError(Problems problems, ExitCode code = ExitCode::usage)
      : Error(code, problems.describe()), problems_(std::move(problems)) {}

  const Problems& problems() const { return problems_; }

 private:
  Problems problems_;
};

}  // namespace dltrain

// The error type of the program, and the exit codes that shell scripts rely on.
//
// Every failure that a user can cause is thrown as Error with a code, a message with the expected
// and the actual state, and an optional place: "exp.yaml:7:14", a layer path, a file with an
// offset. Only apps/ converts an Error to a message on stderr and an exit status; nothing below
// apps/ calls exit() or abort().
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace dltrain {

// Documented in docs/exit-codes.md and in `dltrain --help`; scripts depend on the numbers.
enum class ExitCode : int {
  ok = 0,            // done
  internal = 1,      // a bug in dltrain
  usage = 2,         // configuration or command line
  data = 3,          // data missing, truncated, out of range, not finite
  diverged = 4,      // loss or gradients not finite
  memory = 5,        // does not fit, or out of memory
  rank = 6,          // a rank was lost, hung or never joined
  storage = 7,       // unwritable, full; corrupt or foreign checkpoint
  device = 8,        // device missing or faulty, or a processor without AVX2
  check_failed = 9,  // `dltrain check` found a failure, `dltrain runs reproduce` other bits
  stopped = 75,      // stopped early: by a signal, a time limit or --stop-at; it can be continued
};

class Error : public std::runtime_error {
 public:
  // `message` is one or more complete lines without a trailing newline. `location` may be empty.
  Error(ExitCode code, const std::string& message, std::string location = {})
      : std::runtime_error(location.empty() ? message : location + ": " + message),
        code_(code),
        location_(std::move(location)) {}

  ExitCode code() const { return code_; }
  const std::string& location() const { return location_; }

 private:
  ExitCode code_;
  std::string location_;
};

// Throws Error with a formatted message: fail(ExitCode::data, "{} has {} rows", path, n).
template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// For conditions that only a bug in dltrain can violate (exit code 1).
template <typename... Args>
void check_internal(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) {
    throw Error(ExitCode::internal,
                "internal error: " + fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace dltrain

// Passes a child's output on, line by line, each with a prefix, and remembers the last lines.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "comm/socket.h"

namespace dltrain {

class LineRelay {
 public:
  static constexpr size_t kMaxLine = 64 * 1024;  // longer ones are cut into several
  // Bytes that pump() takes: all that a pipe holds.
  static constexpr size_t kMostAtOnce = 64 * 1024;

  // Reads from `from` (non-blocking), writes to the descriptor `to`, which is not owned (−1: to
  // nobody). Once writing fails (a closed pipe), lines are only remembered.
  LineRelay(FileDescriptor from, int to, std::string prefix, size_t remembered);

  // Writes the lines, without the prefix, to this file too, until that fails.
  void copy_to(FileDescriptor file) { file_ = std::move(file); }

  int descriptor() const { return from_.get(); }
  bool open() const { return static_cast<bool>(from_); }
  // Takes what is there now, up to kMostAtOnce: who writes without end does not keep the caller
  // from its other work. At the end of the input, passes on a last line without newline and closes.
  // Returns whether a line was written to the descriptor `to`.
  bool pump();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  bool pass_on(std::string line);

  FileDescriptor from_;
  int to_;
  FileDescriptor file_;
  std::string prefix_;
  size_t remembered_;
  std::string partial_;
  std::deque<std::string> last_lines_;
};

// Writes everything, waiting where `fd` is full; false when nobody reads any more.
bool write_all(int fd, const std::string& text);

}  // namespace dltrain

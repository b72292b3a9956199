// Passes the output of a child process on, line by line with a prefix, and keeps the last lines.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "comm/socket.h"

namespace dltrain {

class LineRelay {
 public:
  static constexpr size_t kMaxLine = 64 * 1024;  // longer lines are split
  // The most bytes that pump() reads: the capacity of a pipe.
  static constexpr size_t kMaxAtOnce = 64 * 1024;

  // Reads from `from` (non-blocking) and writes to the descriptor `to`, which is not owned (−1: no
  // output). After a failed write (a closed pipe), lines are only kept. `remembered`: their number.
  LineRelay(FileDescriptor from, int to, std::string prefix, size_t remembered);

  // Also writes the lines, without the prefix, to this file, until a write fails.
  void copy_to(FileDescriptor file) { file_ = std::move(file); }

  int descriptor() const { return from_.get(); }
  bool open() const { return static_cast<bool>(from_); }
  // Reads what is available, at most kMaxAtOnce bytes. At the end of the input, passes on a last
  // line without newline and closes. Returns true if a line was written to the descriptor `to`.
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

// Writes everything, waiting while `fd` is full. Returns false if the reader has closed it.
bool write_all(int fd, const std::string& text);

}  // namespace dltrain

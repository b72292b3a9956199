// System calls that fail on purpose: the k-th call fails with an errno, writes short first, or is
// the last that happens at all (as if the process had been killed there).
#pragma once

#include <cerrno>

#include "base/system_calls.h"

namespace dltrain {

class FaultyDisk : public SystemCalls {
 public:
  enum class Fault { none, error, short_write, kill };

  // Calls are counted from 0; with Fault::none they are only counted.
  FaultyDisk(Fault fault, int at, int error_number = ENOSPC)
      : fault_(fault), at_(at), error_number_(error_number) {}

  int calls() const { return calls_; }

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : SystemCalls::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, size_t bytes) override {
    const bool here = calls_ == at_;
    if (here && fault_ == Fault::short_write) {
      ++calls_;
      return SystemCalls::write(fd, data, bytes > 1 ? bytes / 2 : bytes);
    }
    // A killed process may have written a part.
    if (here && fault_ == Fault::kill) (void)SystemCalls::write(fd, data, bytes / 2);
    return fails() ? -1 : SystemCalls::write(fd, data, bytes);
  }
  int truncate(int fd, off_t bytes) override {
    return fails() ? -1 : SystemCalls::truncate(fd, bytes);
  }
  int sync(int fd) override { return fails() ? -1 : SystemCalls::sync(fd); }
  int close(int fd) override {
    const int result = SystemCalls::close(fd);  // the descriptor must not leak into other tests
    return fails() ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : SystemCalls::rename(from, to);
  }
  int make_directory(const char* path, mode_t mode) override {
    return fails() ? -1 : SystemCalls::make_directory(path, mode);
  }
  int remove_file(const char* path) override {
    return fails() ? -1 : SystemCalls::remove_file(path);
  }
  int remove_directory(const char* path) override {
    return fails() ? -1 : SystemCalls::remove_directory(path);
  }

 private:
  bool fails() {
    const int call = calls_++;
    if (fault_ == Fault::none || fault_ == Fault::short_write) return false;
    if (call == at_ || (fault_ == Fault::kill && call > at_)) {
      errno = error_number_;
      return true;
    }
    return false;
  }

  Fault fault_;
  int at_;
  int error_number_;
  int calls_ = 0;
};

}  // namespace dltrain

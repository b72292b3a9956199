// The system calls that change a disk, one virtual function each. All code that must survive a full
// disk, a failing disk or a kill uses them, so that a test can make the k-th call fail, write fewer
// bytes, or be the last call.
//
// The functions behave as the POSIX functions: -1 and errno on failure.
#pragma once

#include <cstddef>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dltrain {

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  virtual int open(const char* path, int flags, mode_t mode) {
    return ::open(path, flags | O_CLOEXEC, mode);
  }
  virtual ssize_t write(int fd, const void* data, size_t n) { return ::write(fd, data, n); }
  virtual int truncate(int fd, off_t bytes) { return ::ftruncate(fd, bytes); }
  virtual int sync(int fd) { return ::fsync(fd); }
  virtual int close(int fd) { return ::close(fd); }
  virtual int rename(const char* from, const char* to) { return ::rename(from, to); }
  virtual int make_directory(const char* path, mode_t mode) { return ::mkdir(path, mode); }
  virtual int remove_file(const char* path) { return ::unlink(path); }
  virtual int remove_directory(const char* path) { return ::rmdir(path); }
};

// Returns the current calls: those of the operating system, unless a test replaced them.
SystemCalls& system_calls();

// Replaces the calls of the process during its lifetime. For tests, one at a time.
class ReplaceSystemCalls {
 public:
  explicit ReplaceSystemCalls(SystemCalls& calls);
  ~ReplaceSystemCalls();
  ReplaceSystemCalls(const ReplaceSystemCalls&) = delete;
  ReplaceSystemCalls& operator=(const ReplaceSystemCalls&) = delete;

 private:
  SystemCalls* before_;
};

}  // namespace dltrain

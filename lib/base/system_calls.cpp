#include "base/system_calls.h"

#include <atomic>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dltrain {
namespace {
SystemCalls operating_system;
std::atomic<SystemCalls*> current{&operating_system};
}  // namespace

int SystemCalls::open(const char* path, int flags, mode_t mode) {
  return ::open(path, flags | O_CLOEXEC, mode);
}
ssize_t SystemCalls::write(int fd, const void* data, size_t bytes) {
  return ::write(fd, data, bytes);
}
int SystemCalls::truncate(int fd, off_t bytes) {
  return ::ftruncate(fd, bytes);
}
int SystemCalls::sync(int fd) {
  return ::fsync(fd);
}
int SystemCalls::close(int fd) {
  return ::close(fd);
}
int SystemCalls::rename(const char* from, const char* to) {
  return ::rename(from, to);
}
int SystemCalls::make_directory(const char* path, mode_t mode) {
  return ::mkdir(path, mode);
}
int SystemCalls::remove_file(const char* path) {
  return ::unlink(path);
}
int SystemCalls::remove_directory(const char* path) {
  return ::rmdir(path);
}

SystemCalls& system_calls() {
  return *current.load(std::memory_order_acquire);
}

ReplaceSystemCalls::ReplaceSystemCalls(SystemCalls& calls)
    : before_(current.exchange(&calls, std::memory_order_acq_rel)) {}
ReplaceSystemCalls::~ReplaceSystemCalls() {
  current.store(before_, std::memory_order_release);
}

}  // namespace dltrain

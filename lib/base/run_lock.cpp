#include "base/run_lock.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/owned_files.h"

namespace dltrain {
namespace {

constexpr std::string_view kHolder = "process ";

std::string first_line(int fd) {
  std::array<char, 300> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view line(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

std::string read_holder(int fd) {
  std::string holder = first_line(fd);
  for (char c : holder) {
    if (c < ' ' || c > '~') return "an unknown process";  // not written by dltrain
  }
  return holder.empty() ? "an unknown process" : holder;
}

FileDescriptor open_folder(const std::filesystem::path& folder) {
  return FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Returns 0 or the errno of the last attempt: is_locked() holds a free lock for a moment.
int try_lock(int fd) {
  for (int attempt = 1;; ++attempt) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || attempt == 30) return errno;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kLockFile;
  fd_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd_) fail_storage(path, "create", errno);
  if (const int error_number = try_lock(fd_.get()); error_number != 0) {
    if (error_number == EWOULDBLOCK) {
      throw Error(ExitCode::usage,
                  fmt::format("this run folder is in use by {}; wait for it, stop it, or choose "
                              "another --output-dir",
                              read_holder(fd_.get())),
                  folder.string());
    }
    log_warning("{}: cannot be locked ({}): a second process could write to it", folder.string(),
                errno_text(error_number));
    return;
  }
  if (const std::string line = first_line(fd_.get()); !line.empty() && !line.starts_with(kHolder)) {
    throw Error(ExitCode::usage, "is not a lock file of dltrain; move it, or choose another folder",
                path.string());
  }
  const std::string holder = fmt::format("{}{} on {}\n", kHolder, ::getpid(), host_name());
  if (::ftruncate(fd_.get(), 0) != 0) fail_storage(path, "write", errno);
  const ssize_t written = ::pwrite(fd_.get(), holder.data(), holder.size(), 0);
  if (written == static_cast<ssize_t>(holder.size())) return;
  const int error_number = written < 0 ? errno : ENOSPC;
  // A part of the line would not be known as one of a lock file.
  [[maybe_unused]] const int ignored = ::ftruncate(fd_.get(), 0);
  fail_storage(path, "write", error_number);
}

bool is_locked(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kLockFile;
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::shared_ptr<void> keep_folder(const std::filesystem::path& folder) {
  auto open = std::make_shared<FileDescriptor>(open_folder(folder));
  ::flock(open->get(), LOCK_SH);
  return open;
}

void remove_unless_kept(const std::filesystem::path& folder) {
  const FileDescriptor open = open_folder(folder);
  const bool kept = ::flock(open.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!kept) remove_owned(folder);
}

}  // namespace dltrain

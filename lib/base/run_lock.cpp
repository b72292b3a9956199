#include "base/run_lock.h"

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

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
    if (c < ' ' || c > '~') return "an unknown process";  // not written by us: do not print it
  }
  return holder.empty() ? "an unknown process" : holder;
}

struct OpenFolder {
  explicit OpenFolder(const std::filesystem::path& folder)
      : fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~OpenFolder() {
    if (fd >= 0) ::close(fd);
  }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  const int fd;
};

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kLockFile;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail_storage(path, "create", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    const std::string holder = error_number == EWOULDBLOCK ? read_holder(fd_) : std::string();
    if (error_number == EWOULDBLOCK) {
      ::close(fd_);
      throw Error(ExitCode::usage,
                  fmt::format("this run folder is in use by {}; wait for it, stop it, or choose "
                              "another --output-dir",
                              holder),
                  folder.string());
    }
    log_warning("{}: no lock possible ({}): nothing stops a second process from writing here",
                folder.string(), std::error_code(error_number, std::generic_category()).message());
    return;
  }
  if (const std::string line = first_line(fd_); !line.empty() && !line.starts_with(kHolder)) {
    ::close(fd_);
    throw Error(ExitCode::usage, "is no lock of dltrain; move it, or take another folder",
                path.string());
  }
  const std::string holder = fmt::format("{}{} on {}\n", kHolder, ::getpid(), host_name());
  if (::ftruncate(fd_, 0) != 0 ||
      ::pwrite(fd_, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    const int error_number = errno;
    ::close(fd_);
    fail_storage(path, "write", error_number);
  }
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<void> keep_folder(const std::filesystem::path& folder) {
  auto open = std::make_shared<OpenFolder>(folder);
  ::flock(open->fd, LOCK_SH);
  return open;
}

void remove_unless_kept(const std::filesystem::path& folder) {
  const OpenFolder open(folder);
  const bool kept = ::flock(open.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!kept) remove_ours(folder);
}

}  // namespace dltrain

#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned_files.h"
#include "base/shortened_files.h"
#include "base/system_calls.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// `Content`: a string or a vector of bytes.
template <typename Content>
void read_whole(const fs::path& path, uint64_t max_bytes, ExitCode on_error, Content& content) {
  uint64_t size = 0;
  const FileDescriptor fd = open_regular(path, on_error, &size);
  if (size > max_bytes) {
    throw Error(on_error, fmt::format("{} bytes, expected at most {}", size, max_bytes),
                path.string());
  }
  content.resize(size);
  uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), content.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(on_error, fmt::format("cannot read at offset {}: {}", done, errno_text(errno)),
                  path.string());
    }
    if (n == 0) break;
    done += static_cast<uint64_t>(n);
  }
  content.resize(done);
}

// Returns true for names such as /dev/stdout. They may refer to a pipe or to a file that others
// write to, so they cannot be replaced.
bool names_open_file(const fs::path& path) {
  const std::string& name = path.native();
  return name == "/dev/stdout" || name == "/dev/stderr" || name.starts_with("/dev/fd/") ||
         name.starts_with("/proc/self/fd/");
}

}  // namespace

std::string errno_text(int error_number) {
  return std::error_code(error_number, std::generic_category()).message();
}

void fail_storage(const fs::path& path, std::string_view action, int error_number) {
  throw Error(ExitCode::storage, fmt::format("cannot {}: {}", action, errno_text(error_number)),
              path.string());
}

FileDescriptor open_regular(const fs::path& path, ExitCode on_error, uint64_t* size) {
  // O_NONBLOCK: opening a pipe must not block before it can be refused.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw Error(on_error, "cannot open: " + errno_text(errno), path.string());
  struct stat info {};
  const auto refuse = [&](const char* problem) { throw Error(on_error, problem, path.string()); };
  if (::fstat(fd.get(), &info) != 0) refuse("cannot be examined");
  if (S_ISDIR(info.st_mode)) refuse("is a folder, expected a file");
  if (!S_ISREG(info.st_mode)) refuse("is not a regular file");
  check_no_output(fd.get(), path);
  if (size != nullptr) *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

FileWriter::FileWriter(fs::path path, bool append) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC);
  fd_ = FileDescriptor(system_calls().open(path_.c_str(), flags, 0666));
  if (!fd_) fail_storage(path_, "create", errno);
}

void FileWriter::write(std::span<const std::byte> data) {
  hasher_.update(data);
  while (!data.empty()) {
    const ssize_t written = system_calls().write(fd_.get(), data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_storage(path_, fmt::format("write ({} bytes written so far)", bytes_), errno);
    }
    // A device may accept no bytes without an error; retrying could loop forever.
    if (written == 0) fail_storage(path_, "write", ENOSPC);
    bytes_ += static_cast<uint64_t>(written);
    data = data.subspan(static_cast<size_t>(written));
  }
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void FileWriter::sync() {
  if (system_calls().sync(fd_.get()) != 0 && errno != EINVAL) {  // EINVAL: a pipe or a device
    fail_storage(path_, "sync", errno);
  }
}

FileDigest FileWriter::close() {
  // Network file systems report a full disk only here.
  if (system_calls().close(fd_.release()) != 0 && errno != EINTR) {
    fail_storage(path_, "close", errno);
  }
  return hasher_.digest();
}

MappedFile::MappedFile(const fs::path& path, ExitCode on_error) {
  uint64_t size = 0;
  const FileDescriptor fd = open_regular(path, on_error, &size);
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    throw Error(on_error, "cannot map into memory: " + errno_text(errno), path.string());
  }
  data_ = {static_cast<const std::byte*>(data), Unmap{size}};
  watch_mapping(bytes(), path, on_error);
}

void MappedFile::Unmap::operator()(const std::byte* data) const {
  forget_mapping(data);
  ::munmap(const_cast<std::byte*>(data), size);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string read_file(const fs::path& path, uint64_t max_bytes, ExitCode on_error) {
  std::string content;
  read_whole(path, max_bytes, on_error, content);
  return content;
}

void read_file(const fs::path& path, uint64_t max_bytes, ExitCode on_error,
               std::vector<uint8_t>& content) {
  read_whole(path, max_bytes, on_error, content);
}

void write_file_atomically(const fs::path& path, std::string_view content, std::string_view mark) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  const bool open_file = names_open_file(path);
  if (fs::exists(status) && !fs::is_directory(status) &&
      (open_file || !fs::is_regular_file(status))) {
    FileWriter file(path, /*append=*/open_file);
    file.write(content);
    file.close();
    return;
  }
  fs::path target = path;
  if (fs::is_symlink(path, ignored)) {
    std::error_code failed;
    target = fs::weakly_canonical(path, failed);
    if (failed) fail_storage(path, "follow the link", failed.value());
  }
  if (!fs::exists(parent_of(target), ignored)) {
    throw Error(ExitCode::storage,
                fmt::format("cannot create: there is no folder {}", parent_of(target).string()),
                path.string());
  }
  const fs::path temporary =
      parent_of(target) / fmt::format(".tmp-{}{}", target.filename().string(), mark);
  try {
    FileWriter file(temporary);
    file.write(content);
    file.sync();
    file.close();
    if (system_calls().rename(temporary.c_str(), target.c_str()) != 0) {
      fail_storage(target, "put in place", errno);
    }
  } catch (...) {
    system_calls().remove_file(temporary.c_str());
    throw;
  }
  sync_directory(parent_of(target));
}

void truncate_file(const fs::path& path, uint64_t bytes) {
  const FileDescriptor fd(system_calls().open(path.c_str(), O_WRONLY, 0));
  if (!fd) fail_storage(path, "open", errno);
  if (system_calls().truncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail_storage(path, "shorten", errno);
  }
}

void sync_directory(const fs::path& path) {
  const FileDescriptor fd(system_calls().open(path.c_str(), O_RDONLY | O_DIRECTORY, 0));
  if (!fd) fail_storage(path, "open", errno);
  // File systems that cannot sync a folder return EINVAL; they order renames themselves.
  if (system_calls().sync(fd.get()) != 0 && errno != EINVAL) fail_storage(path, "sync", errno);
}

void make_directories(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || fs::is_directory(path, ignored)) return;
  if (path.has_parent_path() && path.parent_path() != path) make_directories(path.parent_path());
  if (!path.has_filename()) return;  // trailing slash: the parent is the whole path
  if (system_calls().make_directory(path.c_str(), 0777) != 0) {
    const int error_number = errno;
    if (!fs::is_directory(path, ignored)) fail_storage(path, "create the folder", error_number);
  }
}

void remove_recursively(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) {
    if (system_calls().remove_file(path.c_str()) != 0 && errno != ENOENT) {
      fail_storage(path, "remove", errno);
    }
    return;
  }
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    remove_recursively(it->path());
  }
  if (error) fail_storage(path, "list", error.value());
  if (system_calls().remove_directory(path.c_str()) != 0 && errno != ENOENT) {
    fail_storage(path, "remove", errno);
  }
}

}  // namespace dltrain

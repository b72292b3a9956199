#include "data/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kPiece = 256 << 10;
constexpr size_t kMaxLine = 64 << 20;

std::string reason(int error_number) {
  return std::error_code(error_number, std::generic_category()).message();
}

// A gzip or plain file; zlib tells which by its first bytes.
std::function<size_t(std::span<char>)> open_file(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(ExitCode::data, "cannot open: " + reason(errno), name);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(ExitCode::data, "is not a regular file", name);
  }
  gzFile opened = ::gzdopen(fd, "rb");
  if (!opened) {
    ::close(fd);
    throw Error(ExitCode::memory, "no memory to read it", name);
  }
  const std::shared_ptr<gzFile_s> file(opened, [](gzFile f) { ::gzclose(f); });
  ::gzbuffer(opened, kPiece);
  return [file, name](std::span<char> out) -> size_t {
    const int n = ::gzread(file.get(), out.data(), static_cast<unsigned>(out.size()));
    int code = Z_OK;
    const char* message = ::gzerror(file.get(), &code);
    // A cut archive gives what it has and Z_BUF_ERROR; what it gave may end inside a line.
    if (n < 0 || code == Z_BUF_ERROR) {
      const std::string why = code == Z_ERRNO ? "cannot read: " + reason(errno)
                              : code == Z_BUF_ERROR
                                  ? std::string("truncated: the compressed data ends too early")
                                  : std::string("damaged compressed data: ") + message;
      throw Error(ExitCode::data, why, fmt::format("{} (offset {})", name, ::gzoffset(file.get())));
    }
    return static_cast<size_t>(n);
  };
}

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : name_(path.string()), read_(open_file(name_)), buffer_(kPiece) {}

LineReader::LineReader(std::string name, std::string_view text)
    : name_(std::move(name)),
      read_([text](std::span<char> out) mutable {
        const size_t n = std::min(out.size(), text.size());
        std::memcpy(out.data(), text.data(), n);
        text.remove_prefix(n);
        return n;
      }),
      buffer_(std::min(kPiece, text.size() + 1)) {}

std::string LineReader::place() const {
  return fmt::format("{}:{}", name_, line_);
}

// Moves the unread rest to the front and reads behind it; false at the end of the file.
bool LineReader::refill() {
  if (at_end_) return false;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= kMaxLine) {
      throw Error(ExitCode::data, fmt::format("a line of more than {} MiB", kMaxLine >> 20),
                  fmt::format("{}:{}", name_, line_ + 1));
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const size_t n = read_(std::span(buffer_).subspan(end_));
  end_ += n;
  at_end_ = n == 0;
  return !at_end_;
}

std::optional<std::string_view> LineReader::next() {
  size_t searched = 0;
  while (true) {
    const char* from = buffer_.data() + begin_;
    const size_t available = end_ - begin_;
    const void* found =
        available > searched ? std::memchr(from + searched, '\n', available - searched) : nullptr;
    size_t length = available;
    size_t used = available;
    if (found) {
      length = static_cast<size_t>(static_cast<const char*>(found) - from);
      used = length + 1;
    } else {
      searched = available;
      if (refill()) continue;
      if (available == 0) return std::nullopt;
      from = buffer_.data() + begin_;
    }
    begin_ += used;
    std::string_view text(from, length);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (++line_ == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return text;
  }
}

}  // namespace dltrain

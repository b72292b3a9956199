#include "data/line_reader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kLineReaderPiece = 256 << 10;
constexpr size_t kMaxLine = 64 << 20;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : name_(path.string()), read_(open_bytes(name_)), buffer_(kLineReaderPiece) {}

LineReader::LineReader(std::string name, std::string_view text)
    : name_(std::move(name)),
      read_(bytes_of(text)),
      buffer_(std::min(kLineReaderPiece, text.size() + 1)) {}

std::string LineReader::location() const {
  return fmt::format("{}:{}", name_, line_);
}

// Moves the unread rest to the front and reads more; returns false at the end of the file.
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
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    size_t length = rest.find('\n', searched);
    if (length == std::string_view::npos) {
      length = searched = rest.size();
      if (refill()) continue;
      if (length == 0) return std::nullopt;
    }
    std::string_view text(buffer_.data() + begin_, length);  // refill() moves the rest
    begin_ = std::min(begin_ + length + 1, end_);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (++line_ == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return text;
  }
}

}  // namespace dltrain

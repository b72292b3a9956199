#include "data/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <zlib.h>

#include "base/file.h"
#include "base/stop.h"

namespace dltrain {
namespace {

constexpr size_t kByteSourcePiece = 256 << 10;

}  // namespace

ByteSource open_bytes(const std::string& name) {
  FileDescriptor fd = open_regular(name, ExitCode::data);
  gzFile opened = ::gzdopen(fd.get(), "rb");
  if (!opened) throw Error(ExitCode::memory, "out of memory", name);
  fd.release();  // closed by gzclose
  const std::shared_ptr<gzFile_s> file(opened, [](gzFile f) { ::gzclose(f); });
  ::gzbuffer(opened, kByteSourcePiece);
  return [file, name](std::span<char> out) -> size_t {
    check_stop();
    const int n = ::gzread(file.get(), out.data(), static_cast<unsigned>(out.size()));
    int code = Z_OK;
    const char* message = ::gzerror(file.get(), &code);
    // A truncated archive returns its last bytes with Z_BUF_ERROR; they may end within a line.
    if (n < 0 || code == Z_BUF_ERROR) {
      const std::string why = code == Z_ERRNO ? "cannot read: " + errno_text(errno)
                              : code == Z_BUF_ERROR
                                  ? std::string("truncated: the compressed data ends too early")
                                  : std::string("damaged compressed data: ") + message;
      throw Error(ExitCode::data, why, fmt::format("{} (offset {})", name, ::gzoffset(file.get())));
    }
    return static_cast<size_t>(n);
  };
}

ByteSource bytes_of(std::string_view text) {
  return [text](std::span<char> out) mutable {
    const size_t n = std::min(out.size(), text.size());
    std::memcpy(out.data(), text.data(), n);
    text.remove_prefix(n);
    return n;
  };
}

void ByteReader::read(std::span<uint8_t> out, std::string_view what) {
  while (!out.empty()) {
    const size_t n = read_({reinterpret_cast<char*>(out.data()), out.size()});
    if (n == 0) {
      throw Error(ExitCode::data,
                  fmt::format("truncated: {} more bytes of {} were expected", out.size(), what),
                  fmt::format("{} (offset {})", name_, offset_));
    }
    offset_ += n;
    out = out.subspan(n);
  }
}

void ByteReader::skip(uint64_t bytes, std::string_view what) {
  uint8_t piece[4096];
  while (bytes > 0) {
    const size_t n = std::min<uint64_t>(bytes, sizeof piece);
    read({piece, n}, what);
    bytes -= n;
  }
}

void ByteReader::expect_end(std::string_view what) {
  char extra = 0;
  if (read_({&extra, 1}) == 0) return;
  throw Error(ExitCode::data, fmt::format("is longer than {} says", what),
              fmt::format("{} (offset {})", name_, offset_));
}

}  // namespace dltrain

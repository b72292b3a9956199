// libFuzzer entry: any bytes as a file of packed images, once as they are and once with the
// directory's checksum made to fit, so that what lies after it is reached. Allowed: images that
// lie inside the file, or Error(data).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "data/packed_images.h"

namespace {

using namespace dltrain;

// A file in memory, whose path this process can open.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(::memfd_create("packed", 0)) {
    if (fd_ < 0 ||
        ::write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void open_and_read(const std::string& content) {
  const MemoryFile file(content);
  try {
    const auto source = open_packed_images(file.path());
    std::vector<uint8_t> buffer;
    uint64_t sum = 0;
    for (int64_t i = 0; i < source->size(); ++i) {
      try {
        for (const uint8_t byte : source->read(i, buffer).bytes) sum += byte;
      } catch (const Error& error) {
        if (error.code() != ExitCode::data) std::abort();
      }
    }
    if (sum == ~uint64_t{0}) std::abort();  // the bytes are looked at
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
}

void fix_checksum(std::string& content) {
  packed::Footer footer{};
  if (content.size() < sizeof footer) return;
  const size_t room = content.size() - sizeof footer;
  std::memcpy(&footer, content.data() + room, sizeof footer);
  if (footer.index_offset > room) return;
  Hasher hasher;
  hasher.update(
      std::as_bytes(std::span(content).subspan(footer.index_offset, room - footer.index_offset)));
  std::memcpy(footer.checksum, hasher.hex().data(), sizeof footer.checksum);
  std::memcpy(content.data() + room, &footer, sizeof footer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string content(reinterpret_cast<const char*>(data), size);
  open_and_read(content);
  fix_checksum(content);
  open_and_read(content);
  return 0;
}

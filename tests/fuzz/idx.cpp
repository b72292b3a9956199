// libFuzzer entry: any bytes as a pair of IDX files; the first byte says where the second begins.
// Allowed: images that can be read, or Error(data).
#include "data/idx.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t labels = std::min<size_t>(data[0], text.size());
  try {
    const auto source =
        load_idx({"images", "labels", data[0] & 1 ? std::optional<int64_t>(10) : std::nullopt},
                 ByteReader("images", bytes_of(text.substr(labels))),
                 ByteReader("labels", bytes_of(text.substr(0, labels))));
    std::vector<uint8_t> buffer;
    const StoredImage image = source->read(source->size() - 1, buffer);
    if (static_cast<int64_t>(image.bytes.size()) != source->image_size().elements()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}

// libFuzzer entry: any bytes as a tar archive of CIFAR files. Allowed: images, or Error(data).
#include "data/cifar.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const CifarOptions options{"a.tar", (data[0] & 4) != 0, static_cast<CifarKind>(data[0] % 3)};
  try {
    const auto source = load_cifar(options, ByteReader("a.tar", bytes_of(text)));
    if (source->size() < 1) std::abort();
    for (const int32_t label : source->labels()) {
      if (label < 0 || label > 99) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}

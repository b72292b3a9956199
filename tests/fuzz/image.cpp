// libFuzzer entry: any bytes as a JPEG or PNG file; the first byte chooses channels and scale.
// Allowed: an image of the size that its header states, or Error(data). Images of more than a
// megapixel are not decoded, so that a campaign stays quick.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "data/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  const int64_t channels = data[0] & 1 ? 3 : 1;
  const double scale = data[0] & 2 ? 1 : data[0] & 4 ? 0.5 : 0.1;
  static WorkingImage<uint8_t> frame;
  try {
    const StoredImage image = probe_image({data + 1, size - 1});
    if (image.size.height * image.size.width > 1 << 20) return 0;
    decode_image(image, channels, scale, frame);
    if (frame.full().height != image.size.height || frame.full().width != image.size.width ||
        frame.size().channels != channels) {
      std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}

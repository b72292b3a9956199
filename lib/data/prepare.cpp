#include "data/prepare.h"

#include <algorithm>

#include "base/error.h"
#include "data/broken_images.h"
#include "data/ordered_work.h"
#include "data/packed_images.h"
#include "data/resample.h"

namespace dltrain {
namespace {

// An image to be written.
struct PreparedImage {
  int64_t sample = 0;
  StoredImage image;
  std::vector<uint8_t> bytes;  // of the image, unless the source owns them
};

// Scratch memory of a thread.
struct Scratch {
  WorkingImage<uint8_t> frame;
  std::vector<uint8_t> file;
};

void convert(const ImageSource& source, const PrepareOptions& options, Scratch& scratch,
             PreparedImage& ready) {
  const int64_t channels = source.image_size().channels;
  if (!options.raw) {
    ready.image = source.read(ready.sample, ready.bytes);
    // Finds broken images: decodes the whole file at the smallest scale.
    decode_image(ready.image, channels, 0, scratch.frame);
    return;
  }
  const StoredImage image = source.read(ready.sample, scratch.file);
  const int64_t shorter = std::min(image.size.height, image.size.width);
  const int64_t wanted = std::min(options.shorter_side.value_or(shorter), shorter);
  const auto scaled = [&](int64_t length) {
    return std::max<int64_t>(1, length * wanted / shorter);
  };
  WorkingImage<uint8_t>& frame = scratch.frame;
  decode_image(image, channels, static_cast<double>(wanted) / static_cast<double>(shorter), frame);
  resample(frame, scaled(image.size.height), scaled(image.size.width));
  const uint8_t* pixels = frame.pixels();
  ready.bytes.assign(pixels, pixels + frame.size().elements());
  ready.image = {ImageEncoding::raw, ready.bytes, frame.size()};
}

}  // namespace

uint64_t prepare_images(const ImageSource& source, const PrepareOptions& options,
                        const std::function<void(int64_t)>& progress) {
  PackedImagesWriter writer(options.output, source.image_size().channels, source.class_names());
  std::vector<Scratch> scratch(static_cast<size_t>(std::max(options.threads, 1)));
  int64_t next = 0;
  ordered_work<PreparedImage>(
      options.threads,
      [&](PreparedImage& ready) { return (ready.sample = next++) < source.size(); },
      [&](PreparedImage& ready, int thread) {
        try {
          convert(source, options, scratch[static_cast<size_t>(thread)], ready);
        } catch (const Error& error) {
          if (error.code() != ExitCode::data || !error.location().empty()) throw;
          throw undecodable(error, source.location_of(ready.sample));
        }
      },
      [&](PreparedImage& ready) {
        writer.add(ready.image, source.labels()[static_cast<size_t>(ready.sample)]);
        const int64_t done = ready.sample + 1;
        if (progress && (done % 256 == 0 || done == source.size())) progress(done);
      },
      /*batch=*/16);
  return writer.finish();
}

}  // namespace dltrain

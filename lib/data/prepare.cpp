#include "data/prepare.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "base/error.h"
#include "data/packed_images.h"
#include "data/resample.h"

namespace dltrain {
namespace {

constexpr int64_t kAtATime = 256;

// An image ready to be written.
struct Ready {
  StoredImage image;
  std::vector<uint8_t> bytes;  // that image.bytes points to, unless the source owns them
  std::exception_ptr error;
};

class Preparer {
 public:
  Preparer(const ImageSource& source, const PrepareOptions& options)
      : source_(source),
        options_(options),
        writer_(options.output, source.image_size().channels, source.class_names()),
        ready_(static_cast<size_t>(std::min(kAtATime, source.size()))) {}

  PrepareReport run(const std::function<void(int64_t)>& progress) {
    for (int64_t first = 0; first < source_.size(); first += kAtATime) {
      const int64_t count = std::min(kAtATime, source_.size() - first);
      make_ready(first, count);
      for (int64_t i = 0; i < count; ++i) {
        const Ready& ready = ready_[static_cast<size_t>(i)];
        if (ready.error) std::rethrow_exception(ready.error);
        writer_.add(ready.image, source_.labels()[static_cast<size_t>(first + i)]);
      }
      if (progress) progress(first + count);
    }
    return {source_.size(), writer_.finish()};
  }

 private:
  void make_ready(int64_t first, int64_t count) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      Frame<uint8_t> frame;
      std::vector<uint8_t> file;
      for (int64_t i = next++; i < count; i = next++) {
        Ready& ready = ready_[static_cast<size_t>(i)];
        ready.error = nullptr;
        try {
          convert(first + i, frame, file, ready);
        } catch (const Error& error) {
          const bool placed = !error.place().empty();
          ready.error = std::make_exception_ptr(
              Error(error.code(), error.what(), placed ? "" : source_.place_of(first + i)));
        }
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < options_.threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& thread : others) thread.join();
  }

  void convert(int64_t sample, Frame<uint8_t>& frame, std::vector<uint8_t>& file, Ready& ready) {
    if (!options_.raw) {
      ready.image = source_.read(sample, ready.bytes);
      // A broken image is found now, not in training: all of it is read, at the smallest scale.
      decode_image(ready.image, source_.image_size().channels, 0, frame);
      return;
    }
    const StoredImage image = source_.read(sample, file);
    const int64_t shorter = std::min(image.size.height, image.size.width);
    const int64_t wanted = std::min(options_.shorter_side.value_or(shorter), shorter);
    const auto scaled = [&](int64_t length) {
      return std::max<int64_t>(1, length * wanted / shorter);
    };
    const double scale = static_cast<double>(wanted) / static_cast<double>(shorter);
    decode_image(image, source_.image_size().channels, scale, frame);
    resample(frame, scaled(image.size.height), scaled(image.size.width));
    const uint8_t* pixels = frame.pixels();
    ready.bytes.assign(pixels, pixels + frame.size().elements());
    ready.image = {ImageEncoding::raw, ready.bytes, frame.size()};
  }

  const ImageSource& source_;
  const PrepareOptions& options_;
  PackedImagesWriter writer_;
  std::vector<Ready> ready_;
};

}  // namespace

PrepareReport prepare_images(const ImageSource& source, const PrepareOptions& options,
                             const std::function<void(int64_t)>& progress) {
  return Preparer(source, options).run(progress);
}

}  // namespace dltrain

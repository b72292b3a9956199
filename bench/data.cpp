// bench_data: images per second that one core prepares for training, from stored bytes to
// normalised f32.
//
//   bench_data [seconds]        for each case; default 2
//
// jpeg: 500 × 375 JPEG files in memory (4:2:0, about the bytes a pixel of a photograph) to 224 ×
// 224 with random_resized_crop, horizontal_flip and normalization. raw: the same from decoded
// pixels. cifar: 32 × 32 images with random_crop (padding 4) and horizontal_flip. Printed: the best
// of ten equal parts of the time, as everything else that runs on the machine only makes it slower,
// and the mean.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <turbojpeg.h>

#include "base/philox.h"
#include "config/bind.h"
#include "config/yaml.h"
#include "data/image_dataset.h"
#include "data/transforms/transforms.h"

namespace {

using namespace dltrain;

// A picture with edges, gradients and grain.
std::vector<uint8_t> make_picture(int64_t number, int64_t height, int64_t width) {
  std::vector<uint8_t> pixels;
  const double angle = 0.7 * static_cast<double>(number);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double u =
          static_cast<double>(x) * std::cos(angle) + static_cast<double>(y) * std::sin(angle);
      for (int64_t c = 0; c < 3; ++c) {
        const double wave = 60 * std::sin(u / (9 + 4 * static_cast<double>(c))) +
                            40 * std::sin(static_cast<double>(x * y) / 900);
        const double grain = 24 * random_uniform(1, static_cast<uint64_t>(number), 0,
                                                 static_cast<uint64_t>((y * width + x) * 3 + c));
        pixels.push_back(to_pixel<uint8_t>(110 + wave + grain + ((x / 50 + y / 40) % 2) * 20));
      }
    }
  }
  return pixels;
}

std::vector<uint8_t> compress(const std::vector<uint8_t>& pixels, int height, int width) {
  tjhandle compressor = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  if (tjCompress2(compressor, pixels.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_420,
                  90, 0) != 0) {
    std::abort();
  }
  std::vector<uint8_t> out(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(compressor);
  return out;
}

// A few images, again and again.
class Images final : public ImageSource {
 public:
  Images(ImageSize size, bool jpeg, std::vector<std::vector<uint8_t>> files)
      : size_(size), jpeg_(jpeg), files_(std::move(files)) {
    labels_.resize(files_.size());
  }

  ImageSize image_size() const override { return jpeg_ ? ImageSize{0, 0, 3} : size_; }
  bool encoded() const override { return jpeg_; }
  StoredImage read(int64_t sample, std::vector<uint8_t>&) const override {
    const auto& file = files_[static_cast<size_t>(sample)];
    if (jpeg_) return probe_image(file);
    return {ImageEncoding::raw, file, size_};
  }
  std::string location_of(int64_t sample) const override { return fmt::format("image {}", sample); }

 private:
  ImageSize size_;
  bool jpeg_;
  std::vector<std::vector<uint8_t>> files_;
};

struct Whole {
  std::vector<std::unique_ptr<Transform>> transforms;
  void describe(Fields& f) {
    f.list_of("transforms", transforms, transform_table(), {.doc = "In order"});
  }
};

TransformList transforms(const std::string& list) {
  Diagnostics diagnostics;
  Whole whole;
  const auto source = std::make_shared<Source>(Source{"bench", "transforms: [" + list + "]"});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(whole, *tree, diagnostics);
  diagnostics.throw_if_any();
  TransformList out;
  for (const auto& transform : whole.transforms) out.push_back(transform->clone());
  return out;
}

// The CPU time of this thread; other programs do not count.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(const char* name, std::shared_ptr<const ImageSource> source, const std::string& list,
             double seconds) {
  const auto data = make_image_dataset(
      std::move(source), {.transforms = transforms(list)},
      {.scale = 1.0 / 255, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}});
  std::vector<std::byte> out(data->fields()[0].sample.bytes());
  constexpr int kParts = 10;
  int64_t position = 0, total = 0;
  double best = 0, all = 0;
  for (int part = 0; part < kParts + 1; ++part) {
    const double begin = cpu_seconds();
    double elapsed = 0;
    int64_t count = 0;
    while (elapsed < seconds / kParts) {
      const int64_t sample = position % data->size();
      data->gather_training(0, {&sample, 1}, {1, position}, out.data());
      ++position;
      ++count;
      elapsed = cpu_seconds() - begin;
    }
    if (part == 0) continue;  // memory grows
    best = std::max(best, static_cast<double>(count) / elapsed);
    total += count;
    all += elapsed;
  }
  fmt::print("{:<6} {:>9.0f} img/s best, {:>9.0f} mean\n", name, best,
             static_cast<double>(total) / all);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  constexpr int kHeight = 375, kWidth = 500, kImages = 16;
  std::vector<std::vector<uint8_t>> raw, jpeg, small;
  size_t bytes = 0;
  for (int i = 0; i < kImages; ++i) {
    raw.push_back(make_picture(i, kHeight, kWidth));
    jpeg.push_back(compress(raw.back(), kHeight, kWidth));
    small.push_back(make_picture(i, 32, 32));
    bytes += jpeg.back().size();
  }
  fmt::print("JPEG files of {} KiB\n", bytes / kImages >> 10);
  const char* const large = "{random_resized_crop: 224}, horizontal_flip";
  const ImageSize size{kHeight, kWidth, 3};
  measure("jpeg", std::make_shared<Images>(size, true, std::move(jpeg)), large, seconds);
  measure("raw", std::make_shared<Images>(size, false, std::move(raw)), large, seconds);
  measure("cifar", std::make_shared<Images>(ImageSize{32, 32, 3}, false, std::move(small)),
          "{random_crop: {size: 32, padding: 4}}, horizontal_flip", seconds);
}

#include "data/broken_images.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/ordered_work.h"

namespace dltrain {
namespace {

constexpr size_t kMaxWarnings = 20;

// A selection of the images of a source.
class ChosenImages final : public ImageSource {
 public:
  ChosenImages(std::shared_ptr<const ImageSource> all, std::vector<int64_t> chosen)
      : all_(std::move(all)), chosen_(std::move(chosen)) {
    for (int64_t i : chosen_) labels_.push_back(all_->labels()[static_cast<size_t>(i)]);
    class_names_ = all_->class_names();
  }

  ImageSize image_size() const override { return all_->image_size(); }
  bool encoded() const override { return all_->encoded(); }
  StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const override {
    return all_->read(chosen_[static_cast<size_t>(sample)], buffer);
  }
  std::string location_of(int64_t sample) const override {
    return all_->location_of(chosen_[static_cast<size_t>(sample)]);
  }

 private:
  std::shared_ptr<const ImageSource> all_;
  std::vector<int64_t> chosen_;
};

}  // namespace

std::vector<std::pair<int64_t, std::string>> find_broken(const ImageSource& source, int threads) {
  struct Check {
    int64_t sample = 0;
    std::string why;  // empty: the image is valid
  };
  std::vector<std::pair<int64_t, std::string>> broken;
  std::vector<WorkingImage<uint8_t>> frames(static_cast<size_t>(std::max(threads, 1)));
  std::vector<std::vector<uint8_t>> buffers(frames.size());
  int64_t next = 0;
  ordered_work<Check>(
      threads, [&](Check& check) { return (check.sample = next++) < source.size(); },
      [&](Check& check, int thread) {
        const auto t = static_cast<size_t>(thread);
        check.why.clear();
        try {
          // Decodes the whole file at the smallest scale.
          decode_image(source.read(check.sample, buffers[t]), source.image_size().channels, 0,
                       frames[t]);
        } catch (const Error& error) {
          check.why = error.what();
          if (error.location().empty())
            check.why.insert(0, source.location_of(check.sample) + ": ");
        }
      },
      [&](Check& check) {
        if (!check.why.empty()) broken.emplace_back(check.sample, check.why);
      },
      /*batch=*/16);
  return broken;
}

std::shared_ptr<const ImageSource> without_broken(std::shared_ptr<const ImageSource> source,
                                                  const std::string& location, int threads) {
  const auto broken = find_broken(*source, threads);
  if (broken.empty()) return source;
  for (size_t i = 0; i < broken.size() && i < kMaxWarnings; ++i) {
    log_warning("left out: {}", broken[i].second);
  }
  if (broken.size() > kMaxWarnings) {
    log_warning("left out: {} more images", broken.size() - kMaxWarnings);
  }
  std::vector<int64_t> valid;
  auto next = broken.begin();
  for (int64_t i = 0; i < source->size(); ++i) {
    if (next == broken.end() || next->first != i) {
      valid.push_back(i);
    } else {
      ++next;
    }
  }
  if (valid.empty()) throw Error(ExitCode::data, "none of its images can be decoded", location);
  return std::make_shared<ChosenImages>(std::move(source), std::move(valid));
}

}  // namespace dltrain

#include "data/broken_images.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/stop.h"

namespace dltrain {
namespace {

constexpr size_t kMostWarnings = 20;

// Some of the images of a source.
class ChosenImages final : public ImageSource {
 public:
  ChosenImages(std::shared_ptr<const ImageSource> all, std::vector<int64_t> chosen)
      : all_(std::move(all)), chosen_(std::move(chosen)) {
    for (int64_t i : chosen_) labels_.push_back(all_->labels()[static_cast<size_t>(i)]);
  }

  ImageSize image_size() const override { return all_->image_size(); }
  bool encoded() const override { return all_->encoded(); }
  StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const override {
    return all_->read(chosen_[static_cast<size_t>(sample)], buffer);
  }
  const std::vector<int32_t>& labels() const override { return labels_; }
  const std::vector<std::string>& class_names() const override { return all_->class_names(); }
  std::string place_of(int64_t sample) const override {
    return all_->place_of(chosen_[static_cast<size_t>(sample)]);
  }

 private:
  std::shared_ptr<const ImageSource> all_;
  std::vector<int64_t> chosen_;
  std::vector<int32_t> labels_;
};

}  // namespace

std::vector<std::pair<int64_t, std::string>> find_broken(const ImageSource& source, int threads) {
  std::vector<std::pair<int64_t, std::string>> broken;
  std::mutex mutex;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    Frame<uint8_t> frame;
    std::vector<uint8_t> buffer;
    for (int64_t sample = next++; sample < source.size() && !stop_asked(); sample = next++) {
      std::string why;
      try {
        // The smallest scale: all of the file is read, little is computed.
        decode_image(source.read(sample, buffer), source.image_size().channels, 0, frame);
      } catch (const Error& error) {
        why = error.place().empty() ? source.place_of(sample) + ": " + error.what() : error.what();
      }
      if (why.empty()) continue;
      const std::lock_guard lock(mutex);
      broken.emplace_back(sample, std::move(why));
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  check_stop();
  std::sort(broken.begin(), broken.end());
  return broken;
}

std::shared_ptr<const ImageSource> without_broken(std::shared_ptr<const ImageSource> source,
                                                  const std::string& place, int threads) {
  const auto broken = find_broken(*source, threads);
  if (broken.empty()) return source;
  for (size_t i = 0; i < broken.size() && i < kMostWarnings; ++i) {
    log_warning("left out: {}", broken[i].second);
  }
  if (broken.size() > kMostWarnings) {
    log_warning("left out: {} more images", broken.size() - kMostWarnings);
  }
  std::vector<int64_t> sound;
  auto next = broken.begin();
  for (int64_t i = 0; i < source->size(); ++i) {
    if (next != broken.end() && next->first == i) {
      ++next;
    } else {
      sound.push_back(i);
    }
  }
  if (sound.empty()) throw Error(ExitCode::data, "none of its images can be decoded", place);
  return std::make_shared<ChosenImages>(std::move(source), std::move(sound));
}

}  // namespace dltrain

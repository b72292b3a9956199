#include "data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "data/broken_images.h"
#include "data/dataset.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kImageFolderMaxFile = uint64_t{256} << 20;

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

struct File {
  std::string path;
  int32_t label;
};

class FolderImages final : public ImageSource {
 public:
  FolderImages(int64_t channels, std::vector<std::string> class_names, std::vector<File> files)
      : channels_(channels), class_names_(std::move(class_names)), files_(std::move(files)) {
    for (const File& file : files_) labels_.push_back(file.label);
  }

  ImageSize image_size() const override { return {0, 0, channels_}; }
  bool encoded() const override { return true; }
  StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const override {
    read_file(files_[static_cast<size_t>(sample)].path, kImageFolderMaxFile, ExitCode::data,
              buffer);
    return probe_image(buffer);
  }
  const std::vector<int32_t>& labels() const override { return labels_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string place_of(int64_t sample) const override {
    return files_[static_cast<size_t>(sample)].path;
  }

 private:
  int64_t channels_;
  std::vector<std::string> class_names_;
  std::vector<File> files_;
  std::vector<int32_t> labels_;
};

// Files that are no images by their names.
struct PassedOver {
  int64_t count = 0;
  std::string least;  // the first by name

  void add(const std::string& path) {
    if (count++ == 0 || path < least) least = path;
  }
  // Once for a folder, however often it is opened.
  void tell(const std::string& folder) const {
    static std::mutex mutex;
    static std::set<std::string> told;
    const std::lock_guard lock(mutex);
    if (count == 0 || !told.insert(folder).second) return;
    log_warning("{}: {} file{} that {} no .jpg, .jpeg or .png passed over, the first {}", folder,
                count, count == 1 ? "" : "s", count == 1 ? "is" : "are", least);
  }
};

// The paths below `folder` in order; folders that are links are not entered, so there are no
// circles.
std::vector<std::string> image_files(const fs::path& folder, PassedOver& passed_over) {
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    check_stop();
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_directory()) {
      continue;
    } else if (is_image_name(entry->path())) {
      files.push_back(entry->path().string());
    } else {
      passed_over.add(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> class_folders(const std::string& path) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_directory() && !is_hidden(entry.path())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    throw Error(ExitCode::data,
                "has no sub-folders; images of a class are expected in one each (for predict, "
                "`target: none` takes images without classes)",
                path);
  }
  return names;
}

std::vector<File> list_files(const std::string& path, const std::vector<std::string>& classes) {
  std::vector<File> files;
  PassedOver passed_over;
  for (size_t i = 0; i < classes.size(); ++i) {
    const fs::path folder = fs::path(path) / classes[i];
    const std::vector<std::string> found = image_files(folder, passed_over);
    if (found.empty()) {
      throw Error(ExitCode::data, "has no .jpg, .jpeg or .png files", folder.string());
    }
    for (const std::string& file : found) files.push_back({file, static_cast<int32_t>(i)});
  }
  passed_over.tell(path);
  return files;
}

std::vector<File> list_without_classes(const std::string& path) {
  std::vector<File> files;
  PassedOver passed_over;
  for (const std::string& file : image_files(path, passed_over)) {
    files.push_back({file, kIgnoredLabel});
  }
  if (files.empty()) throw Error(ExitCode::data, "has no .jpg, .jpeg or .png files", path);
  passed_over.tell(path);
  return files;
}

}  // namespace

std::shared_ptr<const ImageSource> open_image_folder(const ImageFolderOptions& options) {
  try {
    std::vector<std::string> classes;
    if (!options.untargeted) classes = class_folders(options.path);
    std::vector<File> files =
        options.untargeted ? list_without_classes(options.path) : list_files(options.path, classes);
    auto images = std::make_shared<const FolderImages>(options.channels, std::move(classes),
                                                       std::move(files));
    if (options.skip_broken) return without_broken(images, options.path, options.threads);
    return images;
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::data, "cannot list: " + error.code().message(), error.path1().string());
  }
}

}  // namespace dltrain

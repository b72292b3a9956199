#include "data/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/cpus.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owned_files.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "data/broken_images.h"
#include "data/config.h"
#include "data/dataset.h"
#include "data/image_config.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kImageFolderMaxFile = uint64_t{256} << 20;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(int64_t channels, std::vector<std::string> class_names,
               std::vector<std::string> files, std::vector<int32_t> labels)
      : channels_(channels), files_(std::move(files)) {
    labels_ = std::move(labels);
    class_names_ = std::move(class_names);
  }

  ImageSize image_size() const override { return {0, 0, channels_}; }
  bool encoded() const override { return true; }
  StoredImage read(int64_t sample, std::vector<uint8_t>& buffer) const override {
    read_file(files_[static_cast<size_t>(sample)], kImageFolderMaxFile, ExitCode::data, buffer);
    return probe_image(buffer);
  }
  // Names need not be UTF-8, but tables of predictions are.
  std::string location_of(int64_t sample) const override {
    return printable(files_[static_cast<size_t>(sample)]);
  }

 private:
  int64_t channels_;
  std::vector<std::string> files_;
};

// Counts files that are not read.
struct SkippedFiles {
  int64_t count = 0;
  std::string least;  // the first by name

  void add(const std::string& path) {
    if (count++ == 0 || path < least) least = path;
  }
  // Warns; `which` says why they are not read.
  void warn(const std::string& folder, const std::string& which) const {
    if (count == 0) return;
    warn_once(fmt::format("{}: skipped {} file{} {}, the first is {}", folder, count,
                          count == 1 ? "" : "s", which, least));
  }
};

// Returns the image files below `folder` in order. Follows links to folders only with `links`, and
// then only those in `folder` itself, so there are no cycles.
std::vector<std::string> image_files(const fs::path& folder, bool links, SkippedFiles& skipped) {
  std::vector<std::string> files;
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, kFollow), end; entry != end; ++entry) {
    check_stop();
    if (entry->is_symlink() && !(links && entry.depth() == 0)) entry.disable_recursion_pending();
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_directory()) {
      continue;
    } else if (is_image_name(entry->path())) {
      files.push_back(entry->path().string());
    } else {
      skipped.add(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> class_folders(const std::string& path) {
  std::vector<std::string> names;
  SkippedFiles beside;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (is_hidden(entry.path())) continue;
    if (!entry.is_directory()) {
      if (is_image_name(entry.path())) beside.add(entry.path().string());
      continue;
    }
    names.push_back(entry.path().filename().string());
    if (find_invalid_utf8(names.back())) {
      throw Error(ExitCode::data, "is the name of a class, but is not UTF-8; rename the folder",
                  printable(entry.path().string()));
    }
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    throw Error(ExitCode::data,
                "has no sub-folders; each class must have one (for predict, `target: none` reads "
                "images without classes)",
                path);
  }
  beside.warn(path, "beside the folders of the classes");
  return names;
}

struct ImageFolderConfig final : ImageConfig {
  ImageFolderOptions options;
  bool skip_broken = false;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "A folder with a sub-folder of JPEG and PNG files for each class",
            .required = true,
            .is_path = true,
            .known_as = {"root", "folder"}});
    f.choice("color", options.channels, {{"rgb", 3, "three channels"}, {"gray", 1, "one channel"}},
             {.doc = "The format to which images are converted", .known_as = {"mode", "channels"}});
    f.choice("target", options.untargeted,
             {{"folder", false, "the class is the sub-folder of path"},
              {"none", true, "images anywhere below path, without classes, for predict"}},
             {.doc = "The targets"});
    describe_on_error(f, skip_broken);
    ImageConfig::describe(f);
  }
  bool tail_is_by_class() const override { return true; }
  std::filesystem::path sample_folder() const override { return options.path; }
  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    auto dataset = ImageConfig::open(how);
    return options.untargeted ? without_targets(std::move(dataset)) : dataset;
  }
  std::shared_ptr<const ImageSource> open_images() const override {
    const auto images = open_image_folder(options);
    return skip_broken ? without_broken(images, options.path, bound_cpu_count()) : images;
  }
};

}  // namespace

bool is_image_name(const std::filesystem::path& path) {
  const std::string ending = lower_ascii(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::shared_ptr<const ImageSource> open_image_folder(const ImageFolderOptions& options) {
  check_no_output_in(options.path);
  try {
    std::vector<std::string> classes, files;
    std::vector<int32_t> labels;
    if (!options.untargeted) classes = class_folders(options.path);
    SkippedFiles skipped;
    for (size_t i = 0; i < std::max<size_t>(classes.size(), 1); ++i) {
      const fs::path folder =
          classes.empty() ? fs::path(options.path) : fs::path(options.path) / classes[i];
      const std::vector<std::string> found = image_files(folder, options.untargeted, skipped);
      if (found.empty()) {
        throw Error(ExitCode::data, "has no .jpg, .jpeg or .png files", folder.string());
      }
      files.insert(files.end(), found.begin(), found.end());
      labels.resize(files.size(), classes.empty() ? kIgnoredLabel : static_cast<int32_t>(i));
    }
    skipped.warn(options.path, "without the ending .jpg, .jpeg or .png");
    return std::make_shared<const FolderImages>(options.channels, std::move(classes),
                                                std::move(files), std::move(labels));
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::data, "cannot list: " + error.code().message(), error.path1().string());
  }
}

KindRow<DatasetConfig> image_folder_row() {
  return {"image_folder",
          "JPEG and PNG files, a sub-folder for each class; needs transforms that end in one size",
          make_kind_of<ImageFolderConfig>};
}

}  // namespace dltrain

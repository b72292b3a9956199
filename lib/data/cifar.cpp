#include "data/cifar.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "config/suggest.h"
#include "data/config.h"
#include "data/image_config.h"
#include "data/line_reader.h"
#include "data/tar.h"

namespace dltrain {
namespace {

constexpr int64_t kSide = 32;
constexpr size_t kPlane = kSide * kSide;
constexpr size_t kPixels = 3 * kPlane;
constexpr uint64_t kCifarMaxFile = 1 << 30;
constexpr uint64_t kMaxNames = 1 << 16;

// The names of the published files of a kind.
struct Layout {
  const char* folder;
  std::vector<std::string> files;
  std::string names;
  size_t labels, label;  // the number of labels before the pixels, and the index of the used one
  int classes;
};

Layout layout_of(const CifarOptions& options) {
  if (options.kind == CifarKind::cifar10) {
    std::vector<std::string> files{"test_batch.bin"};
    if (!options.test) {
      files.clear();
      for (int i = 1; i <= 5; ++i) files.push_back(fmt::format("data_batch_{}.bin", i));
    }
    return {"cifar-10-batches-bin", std::move(files), "batches.meta.txt", 1, 0, 10};
  }
  const bool fine = options.kind == CifarKind::cifar100_fine;
  return {"cifar-100-binary",
          {options.test ? "test.bin" : "train.bin"},
          fine ? "fine_label_names.txt" : "coarse_label_names.txt",
          2,
          fine ? 1U : 0U,
          fine ? 100 : 20};
}

// The content of the required files by name.
using Files = std::map<std::string, std::string>;

Files read_folder(const Layout& layout, const std::filesystem::path& path) {
  std::error_code ignored;
  const auto inside = path / layout.folder;
  const auto folder = std::filesystem::is_directory(inside, ignored) ? inside : path;
  Files files;
  for (const std::string& name : layout.files) {
    files[name] = read_file(folder / name, kCifarMaxFile, ExitCode::data);
  }
  if (std::filesystem::exists(folder / layout.names, ignored)) {
    files[layout.names] = read_file(folder / layout.names, kMaxNames, ExitCode::data);
  }
  return files;
}

Files read_archive(const Layout& layout, TarReader archive, const std::string& path) {
  Files files;
  while (const auto entry = archive.next()) {
    const std::string name = std::filesystem::path(entry->name).filename().string();
    const bool names = name == layout.names;
    if (!names && !contains(layout.files, name)) continue;
    if (entry->size > (names ? kMaxNames : kCifarMaxFile)) {
      throw Error(ExitCode::data, fmt::format("{} has {} bytes", entry->name, entry->size), path);
    }
    std::string& content = files[name] = {};
    constexpr uint64_t kPiece = 1 << 20;
    while (content.size() < entry->size) {
      const size_t begin = content.size();
      content.resize(begin + std::min(kPiece, entry->size - begin));
      archive.read({reinterpret_cast<uint8_t*>(content.data()) + begin, content.size() - begin});
    }
  }
  return files;
}

class CifarLoader {
 public:
  CifarLoader(Layout layout, std::string path)
      : layout_(std::move(layout)), path_(std::move(path)) {}

  std::shared_ptr<const ImageSource> load(const Files& files) {
    for (const std::string& name : layout_.files) {
      const auto found = files.find(name);
      if (found == files.end()) throw Error(ExitCode::data, "has no file " + name, path_);
      add(name, found->second);
    }
    std::vector<std::string> names;
    if (const auto found = files.find(layout_.names); found != files.end()) {
      LineReader lines(layout_.names, found->second);
      while (const auto line = lines.next()) {
        if (!line->empty()) names.emplace_back(*line);
      }
      if (static_cast<int>(names.size()) != layout_.classes) names.clear();
    }
    auto location = [path = path_, files = layout_.files, ends = ends_](int64_t sample) {
      size_t file = 0;
      while (sample >= ends[file]) ++file;
      return fmt::format("{}/{}, record {}", path, files[file],
                         sample - (file > 0 ? ends[file - 1] : 0));
    };
    return std::make_shared<MemoryImages>(ImageSize{kSide, kSide, 3}, std::move(pixels_),
                                          std::move(labels_), std::move(names),
                                          std::move(location));
  }

 private:
  void add(const std::string& name, const std::string& content) {
    const size_t record = layout_.labels + kPixels;
    const std::string location = path_ + "/" + name;
    if (content.empty()) throw Error(ExitCode::data, "is empty", location);
    if (content.size() % record != 0) {
      throw Error(ExitCode::data,
                  fmt::format("has {} bytes, which is not a multiple of the record size {}: "
                              "truncated, or not the binary version",
                              content.size(), record),
                  location);
    }
    const size_t count = content.size() / record, first = labels_.size();
    pixels_.resize((first + count) * kPixels);
    for (size_t i = 0; i < count; ++i) {
      const auto* at = reinterpret_cast<const uint8_t*>(content.data()) + i * record;
      const int label = at[layout_.label];
      if (label >= layout_.classes) {
        throw Error(ExitCode::data,
                    fmt::format("label {} is out of range 0 to {}", label, layout_.classes - 1),
                    fmt::format("{}, record {}", location, i));
      }
      labels_.push_back(label);
      const uint8_t* planes = at + layout_.labels;
      uint8_t* out = pixels_.data() + (first + i) * kPixels;
      for (size_t p = 0; p < kPlane; ++p) {
        for (size_t c = 0; c < 3; ++c) *out++ = planes[c * kPlane + p];
      }
    }
    ends_.push_back(static_cast<int64_t>(labels_.size()));
  }

  Layout layout_;
  std::string path_;
  std::vector<uint8_t> pixels_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> ends_;  // samples up to the end of each file
};

struct CifarConfig : ImageConfig {
  CifarOptions options;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "The folder of the extracted binary version, or its .tar.gz",
            .required = true,
            .is_path = true,
            .known_as = {"root", "folder"}});
    describe_split(f, options.test);
    ImageConfig::describe(f);
  }
  std::shared_ptr<const ImageSource> open_images() const override { return load_cifar(options); }
};

struct Cifar100Config final : CifarConfig {
  Cifar100Config() { options.kind = CifarKind::cifar100_fine; }

  void describe(Fields& f) override {
    f.choice("labels", options.kind,
             {{"fine", CifarKind::cifar100_fine, "100 classes"},
              {"coarse", CifarKind::cifar100_coarse, "their 20 groups"}},
             {.doc = "Which of the two labels of an image"});
    CifarConfig::describe(f);
  }
};

}  // namespace

std::shared_ptr<const ImageSource> load_cifar(const CifarOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.path, ignored)) {
    return load_cifar(options, ByteReader(options.path, open_bytes(options.path)));
  }
  const Layout layout = layout_of(options);
  return CifarLoader(layout, options.path).load(read_folder(layout, options.path));
}

std::shared_ptr<const ImageSource> load_cifar(const CifarOptions& options, ByteReader archive) {
  const Layout layout = layout_of(options);
  const std::string name = archive.name();
  return CifarLoader(layout, name).load(read_archive(layout, TarReader(std::move(archive)), name));
}

KindRow<DatasetConfig> cifar10_row() {
  return {"cifar10", "CIFAR-10, binary version: 32 × 32 images of 10 classes",
          make_kind_of<CifarConfig>};
}
KindRow<DatasetConfig> cifar100_row() {
  return {"cifar100", "CIFAR-100, binary version: 32 × 32 images of 100 classes",
          make_kind_of<Cifar100Config>};
}

}  // namespace dltrain

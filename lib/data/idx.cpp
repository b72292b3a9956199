#include "data/idx.h"

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "data/config.h"
#include "data/image_config.h"
#include "data/memory_dataset.h"

namespace dltrain {
namespace {

constexpr uint8_t kUnsignedBytes = 0x08;

[[noreturn]] void refuse(const ByteReader& file, const std::string& message) {
  throw Error(ExitCode::data, message, file.name());
}

// Returns the sizes of the dimensions, of which there must be `least` to `most`.
std::vector<int64_t> read_header(ByteReader& file, size_t least, size_t most) {
  uint8_t magic[4];
  file.read(magic, "the IDX header");
  if (magic[0] != 0 || magic[1] != 0) refuse(file, "is not an IDX file");
  if (magic[2] != kUnsignedBytes) {
    refuse(file, fmt::format(
                     "has elements of IDX type 0x{:02x}; only unsigned bytes (0x08) are supported",
                     magic[2]));
  }
  if (magic[3] < least || magic[3] > most) {
    refuse(file, fmt::format(
                     "has {} dimensions; {} are expected", magic[3],
                     least == most ? std::to_string(least) : fmt::format("{} or {}", least, most)));
  }
  std::vector<int64_t> sizes;
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t bytes[4];
    file.read(bytes, "the IDX header");
    sizes.push_back(int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]);
    if (sizes.back() == 0) refuse(file, "is empty: a dimension is 0");
  }
  return sizes;
}

// Reads the elements of these sizes, each below 2^32.
std::vector<uint8_t> read_elements(ByteReader& file, const std::vector<int64_t>& sizes) {
  uint64_t bytes = 1;
  for (const int64_t size : sizes) {
    bytes = bytes > (uint64_t{1} << 56) / static_cast<uint64_t>(size)
                ? uint64_t{1} << 56
                : bytes * static_cast<uint64_t>(size);
  }
  check_fits_memory(bytes, file.name());
  // Pieces limit the memory that is allocated for elements that the file lacks.
  constexpr uint64_t kPiece = 16 << 20;
  std::vector<uint8_t> elements;
  while (elements.size() < bytes) {
    const uint64_t begin = elements.size(), n = std::min(kPiece, bytes - begin);
    elements.resize(begin + n);
    file.read(std::span(elements).subspan(begin), "the elements that the header declares");
  }
  file.expect_end("its header");
  return elements;
}

// Returns a published file of the folder, plain or compressed.
std::string find_file(const std::string& folder, const std::string& name) {
  const auto path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  for (const char* ending : {"", ".gz"}) {
    if (std::filesystem::exists(path.string() + ending, ignored)) return path.string() + ending;
  }
  throw Error(ExitCode::data, "does not exist, with or without .gz", path.string());
}

struct IdxConfig final : ImageConfig {
  std::optional<std::string> path, images, labels;
  bool test = false;
  std::optional<int64_t> classes;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "Folder with the files of MNIST or Fashion-MNIST under their published names "
                   "(train-images-idx3-ubyte, …), plain or gzip",
            .is_path = true,
            .known_as = {"root", "folder"}});
    describe_split(f, test);
    f.text("images", images, {.doc = "Instead of path: the file of images", .is_path = true});
    f.text("labels", labels, {.doc = "Instead of path: the file of labels", .is_path = true});
    f.integer("classes", classes,
              {.doc = "Labels must be below this", .min = 1, .known_as = {"num_classes"}});
    ImageConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    ImageConfig::validate(diagnostics);
    if (images.has_value() != labels.has_value()) {
      diagnostics.add(*this, images ? "images" : "labels", "images and labels must both be given");
    } else if (path.has_value() == images.has_value()) {
      diagnostics.add(*this, "path", "give either path, a folder, or the files images and labels");
    }
    if (images && test) diagnostics.add(*this, "split", "split chooses among the files of path");
  }

  std::shared_ptr<const ImageSource> open_images() const override {
    if (images) return load_idx({*images, *labels, classes});
    const std::string part = test ? "t10k" : "train";
    return load_idx({find_file(*path, part + "-images-idx3-ubyte"),
                     find_file(*path, part + "-labels-idx1-ubyte"), classes});
  }
};

}  // namespace

std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options) {
  return load_idx(options, ByteReader(options.images, open_bytes(options.images)),
                  ByteReader(options.labels, open_bytes(options.labels)));
}

std::shared_ptr<const ImageSource> load_idx(const IdxOptions& options, ByteReader images,
                                            ByteReader labels) {
  const std::vector<int64_t> counts = read_header(labels, 1, 1);
  const std::vector<int64_t> sizes = read_header(images, 3, 4);
  if (sizes[0] != counts[0]) {
    refuse(images,
           fmt::format("has {} images, but {} has {} labels", sizes[0], labels.name(), counts[0]));
  }
  if (sizes[1] > kMaxImagePixels / sizes[2]) {
    refuse(images, fmt::format("has images of {} by {} pixels", sizes[2], sizes[1]));
  }
  const ImageSize size{sizes[1], sizes[2], sizes.size() == 4 ? sizes[3] : 1};
  const std::vector<uint8_t> bytes = read_elements(labels, counts);
  for (size_t i = 0; options.classes && i < bytes.size(); ++i) {
    if (bytes[i] < *options.classes) continue;
    throw Error(ExitCode::data,
                fmt::format("label {} is out of range 0 to {}", bytes[i], *options.classes - 1),
                fmt::format("{}, sample {}", labels.name(), i));
  }
  auto location = [name = images.name()](int64_t sample) {
    return fmt::format("{}, sample {}", name, sample);
  };
  return std::make_shared<MemoryImages>(size, read_elements(images, sizes),
                                        std::vector<int32_t>(bytes.begin(), bytes.end()),
                                        std::vector<std::string>{}, std::move(location));
}

KindRow<DatasetConfig> idx_row() {
  return {"idx", "Images and labels in IDX files: MNIST, Fashion-MNIST, EMNIST; plain or gzip",
          make_kind_of<IdxConfig>};
}

}  // namespace dltrain

#include "data/packed_images.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/cpus.h"
#include "base/error.h"
#include "base/json.h"
#include "config/suggest.h"
#include "data/broken_images.h"
#include "data/config.h"
#include "data/image_config.h"

namespace dltrain {
namespace {

constexpr uint64_t kPackedImagesMaxMetadata = 64 << 20;
constexpr int64_t kMaxChannels = 1024;

class PackedImages final : public ImageSource {
 public:
  explicit PackedImages(const std::filesystem::path& path)
      : path_(path.string()), file_(path, ExitCode::data) {
    const packed::Footer footer = read_footer();
    const auto index =
        file_.bytes().subspan(footer.index_offset, footer.entries * sizeof(packed::Entry));
    const auto metadata =
        file_.bytes().subspan(footer.index_offset + index.size(), footer.metadata_bytes);
    Hasher hasher;
    hasher.update(index);
    hasher.update(metadata);
    if (hasher.hex() != std::string_view(footer.checksum, sizeof footer.checksum)) {
      refuse("its directory is damaged: the checksum differs");
    }
    read_metadata(metadata);
    entries_.resize(footer.entries);
    std::memcpy(entries_.data(), index.data(), index.size());
    for (size_t i = 0; i < entries_.size(); ++i) check_entry(i, footer.index_offset);
  }

  ImageSize image_size() const override { return size_; }
  bool encoded() const override { return encoded_; }
  StoredImage read(int64_t sample, std::vector<uint8_t>&) const override {
    const packed::Entry& entry = entries_[static_cast<size_t>(sample)];
    const auto* bytes = reinterpret_cast<const uint8_t*>(file_.bytes().data()) + entry.offset;
    if (static_cast<ImageEncoding>(entry.encoding) != ImageEncoding::raw) {
      return probe_image({bytes, entry.bytes});
    }
    return {ImageEncoding::raw, {bytes, entry.bytes}, {entry.height, entry.width, size_.channels}};
  }
  std::string location_of(int64_t sample) const override {
    return fmt::format("{}, image {}", path_, sample);
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ExitCode::data, message, path_);
  }

  packed::Footer read_footer() const {
    const auto bytes = file_.bytes();
    packed::Footer footer{};
    if (bytes.size() < sizeof footer + sizeof packed::kMagic) {
      refuse("is too short for a file of packed images");
    }
    if (std::memcmp(bytes.data(), packed::kMagic, sizeof packed::kMagic) != 0) {
      refuse("is not a file of packed images (dltrain data prepare writes them)");
    }
    std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
    if (std::memcmp(footer.magic, packed::kMagic, sizeof packed::kMagic) != 0) {
      refuse("truncated: its end is missing");
    }
    const uint64_t room = bytes.size() - sizeof footer;
    if (footer.index_offset < sizeof packed::kMagic || footer.index_offset > room ||
        footer.entries > (room - footer.index_offset) / sizeof(packed::Entry) ||
        footer.metadata_bytes > kPackedImagesMaxMetadata ||
        footer.metadata_bytes !=
            room - footer.index_offset - footer.entries * sizeof(packed::Entry)) {
      refuse("damaged: its sizes are inconsistent");
    }
    if (footer.entries == 0) refuse("has no images");
    return footer;
  }

  void read_metadata(std::span<const std::byte> text) {
    const auto* begin = reinterpret_cast<const char*>(text.data());
    try {
      const auto metadata = parse_json({begin, text.size()});
      if (metadata.at("format") != "dltrain.images") refuse("is not a file of packed images");
      const auto version = metadata.at("version").get<int64_t>();
      if (version != packed::kVersion) {
        refuse(fmt::format("has version {} of the format; version {} is supported", version,
                           packed::kVersion));
      }
      size_.channels = metadata.at("channels").get<int64_t>();
      if (size_.channels < 1 || size_.channels > kMaxChannels) refuse("has no valid channels");
      class_names_ = metadata.value("class_names", class_names_);
    } catch (const nlohmann::json::exception& error) {
      refuse("is not a file of packed images: " + json_error(error.what()));
    }
  }

  void check_entry(size_t i, uint64_t data_end) {
    const packed::Entry& entry = entries_[i];
    const auto bad = [&](const std::string& message) {
      throw Error(ExitCode::data, message, location_of(static_cast<int64_t>(i)));
    };
    if (entry.offset < sizeof packed::kMagic || entry.offset > data_end ||
        entry.bytes > data_end - entry.offset) {
      bad("lies outside of the file");
    }
    if (entry.encoding > static_cast<uint32_t>(ImageEncoding::png)) bad("has an unknown encoding");
    const bool raw = static_cast<ImageEncoding>(entry.encoding) == ImageEncoding::raw;
    const int64_t height = entry.height, width = entry.width;
    if (height == 0 || width == 0 || height > kMaxImagePixels / width) {
      bad(fmt::format("has {} by {} pixels", width, height));
    }
    if (raw && entry.bytes != static_cast<uint64_t>(height * width * size_.channels)) {
      bad(fmt::format("has {} bytes for {} by {} pixels", entry.bytes, width, height));
    }
    if (!raw && size_.channels != 1 && size_.channels != 3)
      bad("is encoded but neither gray nor RGB");
    const auto classes = static_cast<int64_t>(class_names_.size());
    if (entry.label < 0 || entry.label == INT32_MAX || (classes > 0 && entry.label >= classes)) {
      bad(fmt::format("label {} is out of range", entry.label));
    }
    encoded_ = encoded_ || !raw;
    labels_.push_back(entry.label);
    if (i == 0) {
      size_.height = height;
      size_.width = width;
    } else if (size_.height != height || size_.width != width) {
      size_.height = size_.width = 0;
    }
  }

  std::string path_;
  MappedFile file_;
  ImageSize size_;
  bool encoded_ = false;
  std::vector<packed::Entry> entries_;
};

struct PackedImagesConfig final : ImageConfig {
  std::string path;
  bool skip_broken = false;

  void describe(Fields& f) override {
    f.text("path", path,
           {.doc = "A file that `dltrain data prepare` wrote",
            .required = true,
            .is_path = true,
            .known_as = {"file"}});
    describe_on_error(f, skip_broken);
    ImageConfig::describe(f);
  }
  bool tail_is_by_class() const override { return true; }
  // Predictions need no targets: labels of other classes than the model's are left out then.
  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    auto dataset = ImageConfig::open(how);
    if (how.targets || !how.trained || how.trained->class_names.empty()) return dataset;
    const auto& known = how.trained->class_names;
    const bool same = std::ranges::all_of(dataset->class_names(),
                                          [&](const auto& name) { return contains(known, name); });
    return same ? dataset : without_targets(std::move(dataset));
  }
  std::shared_ptr<const ImageSource> open_images() const override {
    const auto images = open_packed_images(path);
    return skip_broken ? without_broken(images, path, bound_cpu_count()) : images;
  }
};

}  // namespace

bool is_packed_images(const std::filesystem::path& path) {
  const MappedFile file(path, ExitCode::usage);
  return file.bytes().size() >= sizeof packed::kMagic &&
         std::memcmp(file.bytes().data(), packed::kMagic, sizeof packed::kMagic) == 0;
}

std::shared_ptr<const ImageSource> open_packed_images(const std::filesystem::path& path) {
  return std::make_shared<PackedImages>(path);
}

PackedImagesWriter::PackedImagesWriter(const std::filesystem::path& path, int64_t channels,
                                       std::vector<std::string> class_names)
    : path_(path),
      partial_(path.string() + ".partial"),
      channels_(channels),
      class_names_(std::move(class_names)),
      file_(partial_) {
  file_.write(std::string_view(packed::kMagic, sizeof packed::kMagic));
}

PackedImagesWriter::~PackedImagesWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(partial_, ignored);
}

void PackedImagesWriter::add(const StoredImage& image, int32_t label) {
  const packed::Entry entry{.offset = file_.bytes(),
                            .bytes = image.bytes.size(),
                            .height = static_cast<uint32_t>(image.size.height),
                            .width = static_cast<uint32_t>(image.size.width),
                            .encoding = static_cast<uint32_t>(image.encoding),
                            .label = label};
  index_.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  const auto bytes = std::as_bytes(image.bytes);
  file_.write(bytes);
  data_hash_.update(bytes);
  ++samples_;
}

uint64_t PackedImagesWriter::finish() {
  const std::string metadata = json_text(nlohmann::json{{"format", "dltrain.images"},
                                                        {"version", packed::kVersion},
                                                        {"channels", channels_},
                                                        {"class_names", class_names_},
                                                        {"data_xxh3_128", data_hash_.hex()}});
  packed::Footer footer{.index_offset = file_.bytes(),
                        .entries = static_cast<uint64_t>(samples_),
                        .metadata_bytes = metadata.size(),
                        .checksum = {},
                        .magic = {}};
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(index_)));
  hasher.update(std::as_bytes(std::span(metadata)));
  std::memcpy(footer.checksum, hasher.hex().data(), sizeof footer.checksum);
  std::memcpy(footer.magic, packed::kMagic, sizeof footer.magic);
  file_.write(index_);
  file_.write(metadata);
  file_.write(std::as_bytes(std::span(&footer, 1)));
  file_.sync();
  const uint64_t bytes = file_.close().bytes;
  std::error_code error;
  std::filesystem::rename(partial_, path_, error);
  if (error) fail_storage(path_, "put into place", error.value());
  finished_ = true;
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
  return bytes;
}

KindRow<DatasetConfig> packed_images_row() {
  return {"packed_images", "Images in one file, mapped into memory; dltrain data prepare writes it",
          make_kind_of<PackedImagesConfig>};
}

}  // namespace dltrain

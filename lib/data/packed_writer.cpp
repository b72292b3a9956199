#include <cstring>
#include <system_error>

#include <nlohmann/json.hpp>

#include "data/packed_format.h"
#include "data/packed_images.h"

namespace dltrain {

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
  const std::string about = nlohmann::json{
      {"format", "dltrain.images"},
      {"version", packed::kVersion},
      {"channels", channels_},
      {"class_names", class_names_},
      {"data_xxh3_128",
       data_hash_.hex()}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  packed::Footer footer{.index_offset = file_.bytes(),
                        .entries = static_cast<uint64_t>(samples_),
                        .about_bytes = about.size(),
                        .checksum = {},
                        .magic = {}};
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(index_)));
  hasher.update(std::as_bytes(std::span(about)));
  std::memcpy(footer.checksum, hasher.hex().data(), sizeof footer.checksum);
  std::memcpy(footer.magic, packed::kMagic, sizeof footer.magic);
  file_.write(index_);
  file_.write(about);
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

}  // namespace dltrain

#include "data/packed_images.h"

#include <cstring>

#include "base/file.h"
#include "data/broken_images.h"
#include "data/image_dataset.h"
#include "images.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

const std::vector<uint8_t> kRaw{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

// A raw image, a JPEG and a PNG.
std::string write_packed_images(const TemporaryFolder& folder) {
  const auto jpeg = golden_image("photo.jpg"), png = golden_image("photo.gray.png");
  const std::string path = (folder / "a.images").string();
  PackedImagesWriter writer(path, 3, {"cat", "dög"});
  writer.add({ImageEncoding::raw, kRaw, {2, 2, 3}}, 1);
  writer.add(probe_image(jpeg), 0);
  writer.add(probe_image(png), 1);
  const uint64_t bytes = writer.finish();
  CHECK(bytes == std::filesystem::file_size(path));
  return path;
}

std::string refusal_packed_images(const TemporaryFolder& folder, const std::string& content) {
  const auto path = folder.write("bad.images", content);
  return refusal_of([&] { open_packed_images(path); });
}

// `content` with its directory changed and the checksum made to fit.
template <typename Change>
std::string forged(std::string content, const Change& change) {
  packed::Footer footer{};
  char* at = content.data() + content.size() - sizeof footer;
  std::memcpy(&footer, at, sizeof footer);
  packed::Entry entry{};
  std::memcpy(&entry, content.data() + footer.index_offset, sizeof entry);
  change(entry, footer);
  std::memcpy(content.data() + footer.index_offset, &entry, sizeof entry);
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(content).subspan(
      footer.index_offset, footer.entries * sizeof entry + footer.metadata_bytes)));
  std::memcpy(footer.checksum, hasher.hex().data(), sizeof footer.checksum);
  std::memcpy(at, &footer, sizeof footer);
  return content;
}

}  // namespace

TEST_CASE("packed images come back as they were, raw and encoded") {
  TemporaryFolder folder;
  const auto source = open_packed_images(write_packed_images(folder));
  CHECK(source->size() == 3);
  CHECK(source->labels() == std::vector<int32_t>{1, 0, 1});
  CHECK(source->class_names() == std::vector<std::string>{"cat", "dög"});
  CHECK(source->image_size() == ImageSize{0, 0, 3});
  CHECK(source->encoded());
  CHECK(stored_pixels(*source, 0) == kRaw);
  CHECK(stored_pixels(*source, 1) == golden_image("photo.jpg"));
  std::vector<uint8_t> buffer;
  CHECK(source->read(2, buffer).encoding == ImageEncoding::png);
  CHECK_FALSE(std::filesystem::exists(folder / "a.images.partial"));

  const std::string file = read_file(folder / "a.images", 1 << 20, ExitCode::data);
  packed::Footer footer{};
  std::memcpy(&footer, file.data() + file.size() - sizeof(footer), sizeof(footer));
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(file).subspan(8, footer.index_offset - 8)));
  CHECK_THAT(file, Catch::Contains(hasher.hex()));
}

TEST_CASE("broken packed images are left out where that is asked for") {
  TemporaryFolder folder;
  const auto jpeg = golden_image("photo.jpg");
  const std::vector<uint8_t> cut(jpeg.begin(), jpeg.begin() + static_cast<long>(jpeg.size() / 2));
  const std::string path = (folder / "a.images").string();
  {
    PackedImagesWriter writer(path, 3, {"cat", "dog", "owl"});
    writer.add(probe_image(cut), 0);
    writer.add(probe_image(jpeg), 1);
    writer.add(probe_image(cut), 1);
    writer.add(probe_image(jpeg), 2);
    writer.finish();
  }
  const auto all = open_packed_images(path);
  const auto sound = without_broken(all, path, 2);
  CHECK(sound->size() == 2);
  CHECK(sound->labels() == std::vector<int32_t>{1, 2});
  CHECK(sound->class_names() == all->class_names());
  CHECK(sound->location_of(1) == path + ", image 3");
  CHECK(stored_pixels(*sound, 0) == jpeg);
  CHECK(find_broken(*sound, 1).empty());
  CHECK(without_broken(sound, path, 1) == sound);

  const std::string none = (folder / "b.images").string();
  PackedImagesWriter writer(none, 3, {});
  writer.add(probe_image(cut), 0);
  writer.finish();
  CHECK_THAT(refusal_of([&] { without_broken(open_packed_images(none), none, 1); }),
             Contains("b.images: none of its images can be decoded"));
}

TEST_CASE(
    "packed raw images of one size need no transforms, and a writer that is dropped leaves "
    "nothing") {
  TemporaryFolder folder;
  const std::string path = (folder / "raw.images").string();
  {
    PackedImagesWriter dropped(path, 3, {});
    dropped.add({ImageEncoding::raw, kRaw, {2, 2, 3}}, 0);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  PackedImagesWriter writer(path, 3, {});
  for (int32_t label : {4, 2}) writer.add({ImageEncoding::raw, kRaw, {2, 2, 3}}, label);
  writer.finish();
  const auto data = make_image_dataset(open_packed_images(path), {}, {});
  CHECK(to_string(data->fields()[0].sample) == "f32[2, 2, 3]");
  CHECK(gathered<float>(*data, 0, {1}) == std::vector<float>(kRaw.begin(), kRaw.end()));
  CHECK(data->label_bound() == 5);
}

TEST_CASE("packed files that are cut, damaged, foreign or forged are refused") {
  TemporaryFolder folder;
  const std::string whole = slurp(write_packed_images(folder));
  CHECK_THAT(refusal_packed_images(folder, ""), Contains("too short"));
  CHECK_THAT(refusal_packed_images(folder, std::string(500, 'x')),
             Contains("not a file of packed images"));
  CHECK_THAT(refusal_packed_images(folder, whole.substr(0, whole.size() - 1)),
             Contains("truncated"));
  std::string damaged = whole;
  damaged[whole.size() - 150] ^= 1;
  CHECK_THAT(refusal_packed_images(folder, damaged), Contains("checksum differs"));

  const auto refused = [&](const auto& change) {
    return refusal_packed_images(folder, forged(whole, change));
  };
  using packed::Entry;
  using packed::Footer;
  CHECK_THAT(refused([](Entry& e, Footer&) { e.offset = uint64_t{1} << 60; }), Contains("outside"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.bytes = ~uint64_t{0}; }), Contains("outside"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.encoding = 7; }), Contains("unknown encoding"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.height = 0xFFFFFFFF; }), Contains("pixels"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.width = 3; }), Contains("12 bytes for 3 by 2"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.label = 2; }), Contains("label 2 is out of range"));
  CHECK_THAT(refused([](Entry& e, Footer&) { e.label = -1; }), Contains("label -1"));
  std::string sizes = whole;
  sizes[whole.size() - 64 + 8] = 100;  // the number of entries
  CHECK_THAT(refusal_packed_images(folder, sizes), Contains("sizes are inconsistent"));
}

#include "data/idx.h"

#include <zlib.h>

#include "data/image_dataset.h"
#include "images.h"
#include "read_data.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

std::string header(int type, std::vector<uint32_t> sizes) {
  std::string out{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift : {24, 16, 8, 0}) out += static_cast<char>(size >> shift & 255);
  }
  return out;
}

// Three images of 2 by 4 whose pixels count from 0.
std::string images() {
  std::string out = header(8, {3, 2, 4});
  for (int i = 0; i < 24; ++i) out += static_cast<char>(i);
  return out;
}
const std::string kLabels = header(8, {3}) + std::string{'\1', '\0', '\7'};

std::string gzip_idx(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(text.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string refusal_idx(const std::string& image_bytes, const std::string& label_bytes,
                        std::optional<int64_t> classes = {}) {
  TemporaryFolder folder;
  const IdxOptions options{folder.write("images", image_bytes).string(),
                           folder.write("labels", label_bytes).string(), classes};
  return refusal_of([&] { load_idx(options); });
}

}  // namespace

TEST_CASE("IDX images and labels are read, plain or compressed") {
  TemporaryFolder folder;
  for (const bool compressed : {false, true}) {
    const auto write = [&](const char* name, const std::string& content) {
      return folder.write(name, compressed ? gzip_idx(content) : content).string();
    };
    const auto source = load_idx({write("images", images()), write("labels", kLabels), 8});
    CHECK(source->size() == 3);
    CHECK(source->image_size() == ImageSize{2, 4, 1});
    CHECK(source->labels() == std::vector<int32_t>{1, 0, 7});
    CHECK(stored_pixels(*source, 2)[0] == 16);
    CHECK_THAT(source->location_of(2), Contains("images, sample 2"));
    const auto data = make_image_dataset(source, {}, {.scale = 0.5, .mean = {1}, .std = {2}});
    CHECK(to_string(data->fields()[0].sample) == "f32[2, 4, 1]");
    CHECK(gathered<float>(*data, 0, {1})[3] == (11 * 0.5f - 1) / 2);
    CHECK(gathered<int32_t>(*data, 1, {2, 0}) == std::vector<int32_t>{7, 1});
    CHECK(data->label_bound() == 8);
    CHECK_FALSE(data->is_expensive());
  }
}

TEST_CASE("IDX files that are cut, too long, empty, foreign or do not fit are refused") {
  const std::string whole = images();
  CHECK_THAT(refusal_idx(whole.substr(0, 20), kLabels), Contains("truncated: 20 more bytes"));
  CHECK_THAT(refusal_idx(whole + "x", kLabels), Contains("is longer than its header says"));
  CHECK_THAT(refusal_idx("", kLabels), Contains("truncated"));
  CHECK_THAT(refusal_idx(whole.substr(0, 7), kLabels), Contains("truncated"));
  CHECK_THAT(refusal_idx("hello world", kLabels), Contains("is not an IDX file"));
  CHECK_THAT(refusal_idx(header(0x0D, {3, 2, 4}), kLabels),
             Contains("type 0x0d; only unsigned bytes"));
  CHECK_THAT(refusal_idx(header(8, {3}), kLabels), Contains("has 1 dimensions; 3 or 4"));
  CHECK_THAT(refusal_idx(header(8, {2, 2, 4}), kLabels), Contains("has 2 images, but"));
  CHECK_THAT(refusal_idx(header(8, {3, 0, 4}), kLabels), Contains("a dimension is 0"));
  CHECK_THAT(refusal_idx(header(8, {3, 0xFFFFFFFF, 0xFFFFFFFF}), kLabels), Contains("pixels"));
  CHECK_THAT(refusal_idx(header(8, {3, 4096, 4096, 0xFFFFFFFF}), kLabels), Contains("memory"));
  CHECK_THAT(refusal_idx(whole, kLabels, 7), Contains("label 7 is out of range 0 to 6"));
  const std::string packed = gzip_idx(whole);
  CHECK_THAT(refusal_idx(packed.substr(0, packed.size() / 2), kLabels), Contains("truncated"));
  CHECK_THAT(refusal_of([] {
               load_idx({"no-such-file", "no-such-file", {}});
             }),
             Contains("cannot open"));
  CHECK_THROWS_WITH(read_data("type: idx, images: a, labels: b, train: {}, eval: {split: test}"),
                    Contains("split chooses among the files of path"));
  CHECK_NOTHROW(read_data("type: idx, images: a, labels: b, split: train"));
}

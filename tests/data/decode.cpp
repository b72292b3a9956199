#include "data/decode.h"

#include <algorithm>
#include <array>

#include "data/picture.h"
#include "data/resample.h"
#include "images.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

TEST_CASE("every form of PNG gives the same picture") {
  const auto rgb = pixels_of(decoded(golden_image("photo.png")));
  CHECK(rgb.size() == 48 * 64 * 3);
  CHECK(pixels_of(decoded(golden_image("photo.rgba.png"))) == rgb);
  CHECK(largest_difference(pixels_of(decoded(golden_image("photo.palette.png"))), rgb) < 120);
  const auto gray = pixels_of(decoded(golden_image("photo.gray.png"), 1));
  CHECK(gray.size() == 48 * 64);
  CHECK(largest_difference(pixels_of(decoded(golden_image("photo.16bit.png"), 1)), gray) <= 1);
  CHECK(largest_difference(pixels_of(decoded(golden_image("photo.png"), 1)), gray) <= 1);
  const auto spread = pixels_of(decoded(golden_image("photo.gray.png"), 3));
  for (size_t i = 0; i < gray.size(); ++i) REQUIRE(spread[3 * i + 1] == gray[i]);
}

TEST_CASE("a picture that the program draws is a PNG of its pixels") {
  const std::vector<float> image{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1};  // black, red; green, blue
  const Picture sheet = contact_sheet(image, 2, 2, 3, {""});
  const std::string png = sheet.png();
  const auto pixels = pixels_of(decoded({png.begin(), png.end()}));
  REQUIRE(pixels.size() == static_cast<size_t>(3 * sheet.height() * sheet.width()));
  const auto pixel = [&](int64_t y, int64_t x) {  // in the middle of an enlarged one
    const auto at = static_cast<size_t>(3 * ((4 + 24 + 48 * y) * sheet.width() + 4 + 24 + 48 * x));
    return std::vector<int>(pixels.begin() + static_cast<std::ptrdiff_t>(at),
                            pixels.begin() + static_cast<std::ptrdiff_t>(at + 3));
  };
  CHECK(pixel(0, 0) == std::vector{0, 0, 0});
  CHECK(pixel(0, 1) == std::vector{255, 0, 0});
  CHECK(pixel(1, 0) == std::vector{0, 255, 0});
  CHECK(pixel(1, 1) == std::vector{0, 0, 255});
}

TEST_CASE("JPEG is decoded as Pillow does, in every form") {
  const auto rgb = pixels_of(decoded(golden_image("photo.png")));
  const auto jpeg = pixels_of(decoded(golden_image("photo.jpg")));
  CHECK(largest_difference(jpeg, pixels_of(decoded(golden_image("jpeg.png")))) <= 1);
  CHECK(largest_difference(jpeg, rgb) < 60);
  CHECK(largest_difference(pixels_of(decoded(golden_image("photo.cmyk.jpg"))), rgb) < 60);
  CHECK(pixels_of(decoded(golden_image("photo.progressive.jpg"))).size() == rgb.size());
  const auto gray = pixels_of(decoded(golden_image("photo.gray.png"), 1));
  CHECK(largest_difference(pixels_of(decoded(golden_image("photo.gray.jpg"), 1)), gray) < 40);
  CHECK(probe_image(golden_image("photo.gray.jpg")).size == ImageSize{48, 64, 1});
}

TEST_CASE("a JPEG is decoded at the smallest scale that is enough, and says so") {
  const auto file = golden_image("photo.jpg");
  const WorkingImage<uint8_t> half = decoded(file, 3, 0.4);
  CHECK(half.size() == ImageSize{24, 32, 3});
  CHECK(half.full() == ImageSize{48, 64, 3});
  CHECK(half.reduced());
  CHECK(decoded(file, 3, 0.51).size() == ImageSize{48, 64, 3});
  CHECK(decoded(file, 3, 0.01).size() == ImageSize{6, 8, 3});
}

TEST_CASE("resizing agrees with Pillow's bilinear filter") {
  WorkingImage<uint8_t> frame = decoded(golden_image("photo.png"));
  resample(frame, 20, 24);
  CHECK(largest_difference(pixels_of(frame), pixels_of(decoded(golden_image("small.png")))) <= 1);
  frame = decoded(golden_image("photo.png"));
  resample(frame, 31, 90);
  CHECK(largest_difference(pixels_of(frame), pixels_of(decoded(golden_image("wide.png")))) <= 1);
}

TEST_CASE("a constant image stays constant at every size, in bytes and in numbers") {
  for (int64_t channels : {1, 2, 3, 4}) {
    const std::vector<uint8_t> bytes(static_cast<size_t>(7 * 5 * channels), 201);
    const std::vector<float> numbers(bytes.size(), 0.25f);
    for (auto [height, width] : {std::pair(1, 1), {3, 9}, {7, 5}, {20, 2}, {64, 64}}) {
      WorkingImage<uint8_t> frame;
      frame.look_at({bytes.data(), {7, 5, channels}, 5 * channels});
      resample(frame, height, width);
      CHECK(pixels_of(frame) ==
            std::vector<uint8_t>(static_cast<size_t>(height * width * channels), 201));
      WorkingImage<float> real;
      real.look_at({numbers.data(), {7, 5, channels}, 5 * channels});
      resample(real, height, width);
      for (float value : pixels_of(real)) REQUIRE(value == Approx(0.25));
    }
  }
}

TEST_CASE("cut, empty, foreign and giant image files are refused") {
  for (const char* name : {"photo.jpg", "photo.png", "photo.progressive.jpg", "photo.cmyk.jpg"}) {
    const auto whole = golden_image(name);
    for (size_t part : {0, 1, 2, 5, 9}) {
      const std::vector<uint8_t> cut(
          whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * part / 10));
      INFO(name << " " << part);
      CHECK_FALSE(refusal_of([&] { decoded(cut); }).empty());
    }
  }
  CHECK_THAT(refusal_of([] { probe_image({}); }), Contains("is empty"));
  const std::vector<uint8_t> text{'h', 'e', 'l', 'l', 'o'};
  CHECK_THAT(refusal_of([&] { probe_image(text); }), Contains("not a JPEG or PNG"));
  // The last table of a progressive JPEG is cut: the decoder warns first, then writes no pixels.
  auto scans = golden_image("photo.progressive.jpg");
  const std::array<uint8_t, 2> table{0xFF, 0xC4};
  const auto last = std::find_end(scans.begin(), scans.end(), table.begin(), table.end());
  scans.erase(last + 5, scans.end());
  CHECK_THAT(refusal_of([&] { decoded(scans); }), Contains("damaged JPEG"));
  // Stray bytes before a marker do not matter, but do not hide that the end is missing.
  auto stray = golden_image("photo.jpg");
  stray.insert(stray.begin() + 20, {1, 2, 3});
  CHECK(pixels_of(decoded(stray)) == pixels_of(decoded(golden_image("photo.jpg"))));
  stray.resize(stray.size() / 2);
  CHECK_THAT(refusal_of([&] { decoded(stray); }), Contains("damaged JPEG"));
  // A header that promises 50,000 by 50,000 pixels; PNG checks its header's checksum, JPEG has
  // none.
  auto giant = golden_image("photo.jpg");
  for (size_t i = 0; i + 9 < giant.size(); ++i) {
    if (giant[i] != 0xFF || giant[i + 1] != 0xC0) continue;
    giant[i + 5] = giant[i + 7] = 50000 >> 8;
    giant[i + 6] = giant[i + 8] = 50000 & 255;
    break;
  }
  CHECK_THAT(refusal_of([&] { decoded(giant); }),
             Contains("50000 by 50000 pixels; the maximum is"));
}

#include "data/picture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>

#include <spng.h>

#include "base/error.h"

namespace dltrain {
namespace {

// A glyph has five rows of three pixels; a row is one octal digit.
struct Glyph {
  char sign;
  const char* rows;
};
constexpr Glyph kGlyphs[] = {
    {'0', "75557"}, {'1', "26227"}, {'2', "71747"}, {'3', "71717"}, {'4', "55711"}, {'5', "74717"},
    {'6', "74757"}, {'7', "71111"}, {'8', "75757"}, {'9', "75717"}, {'A', "25755"}, {'B', "65656"},
    {'C', "34443"}, {'D', "65556"}, {'E', "74647"}, {'F', "74644"}, {'G', "34553"}, {'H', "55755"},
    {'I', "72227"}, {'J', "11152"}, {'K', "55655"}, {'L', "44447"}, {'M', "57755"}, {'N', "65555"},
    {'O', "25552"}, {'P', "65644"}, {'Q', "25531"}, {'R', "65655"}, {'S', "34216"}, {'T', "72222"},
    {'U', "55557"}, {'V', "55552"}, {'W', "55775"}, {'X', "55255"}, {'Y', "55222"}, {'Z', "71247"},
    {'-', "00700"}, {'.', "00002"}, {'+', "02720"}, {'_', "00007"}, {'/', "11244"}, {':', "02020"},
    {'%', "51245"}, {'(', "24442"}, {')', "21112"}, {' ', "00000"}};
constexpr const char* kProgram = "dltrain";  // in the file
constexpr int64_t kZoom = 2;                 // side of a glyph's pixel
constexpr int64_t kSmallestTile = 96;
constexpr int64_t kGap = 4;

const char* rows_of_picture(char sign) {
  const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(sign)));
  for (const Glyph& glyph : kGlyphs) {
    if (glyph.sign == upper) return glyph.rows;
  }
  return "77777";
}

struct Range {
  float least, greatest;
  uint8_t pixel(float value) const {
    if (!(greatest > least)) return 128;
    const float share = (value - least) / (greatest - least);
    if (!(share >= 0)) return 128;  // not a number
    return static_cast<uint8_t>(std::clamp(share * 255.0f + 0.5f, 0.0f, 255.0f));
  }
};

Range range_of(std::span<const float> images, int64_t channels, int64_t channel) {
  Range range{INFINITY, -INFINITY};
  for (size_t i = static_cast<size_t>(channel); i < images.size();
       i += static_cast<size_t>(channels)) {
    range.least = std::min(range.least, images[i]);
    range.greatest = std::max(range.greatest, images[i]);
  }
  return range;
}

}  // namespace

Picture::Picture(int64_t height, int64_t width, uint8_t gray)
    : height_(height), width_(width), pixels_(static_cast<size_t>(3 * height * width), gray) {}

void Picture::write(int64_t y, int64_t x, int64_t right, std::string_view text) {
  for (const char sign : text) {
    // A character of several bytes is drawn once, for its first byte.
    if ((static_cast<unsigned char>(sign) & 0xC0) == 0x80) continue;
    if (x + kLetterWidth > right) return;
    const char* rows = rows_of_picture(sign);
    for (int64_t row = 0; row < 5 * kZoom; ++row) {
      for (int64_t column = 0; column < 3 * kZoom; ++column) {
        const bool ink = (rows[row / kZoom] - '0') >> (2 - column / kZoom) & 1;
        if (ink && y + row < height_) std::fill_n(at(y + row, x + column), 3, uint8_t{0});
      }
    }
    x += kLetterWidth;
  }
}

std::string Picture::png() const {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context(::spng_ctx_new(SPNG_CTX_ENCODER),
                                                               ::spng_ctx_free);
  const auto check = [](int status) {
    if (status != 0) fail(ExitCode::memory, "cannot make a PNG: {}", ::spng_strerror(status));
  };
  if (!context) fail(ExitCode::memory, "no memory for a PNG");
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(width_);
  header.height = static_cast<uint32_t>(height_);
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  check(::spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  check(::spng_set_ihdr(context.get(), &header));
  spng_text about{};
  about.type = SPNG_TEXT;
  std::string_view("Software").copy(about.keyword, sizeof about.keyword);
  std::string program = kProgram;
  about.text = program.data();
  about.length = program.size();
  check(::spng_set_text(context.get(), &about, 1));
  check(::spng_encode_image(context.get(), pixels_.data(), pixels_.size(), SPNG_FMT_PNG,
                            SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int status = 0;
  const std::unique_ptr<void, void (*)(void*)> bytes(
      ::spng_get_png_buffer(context.get(), &size, &status), std::free);
  check(status);
  return {static_cast<const char*>(bytes.get()), size};
}

bool is_own_picture(const std::filesystem::path& path) {
  std::string begin(128, '\0');  // the text precedes the pixels
  std::ifstream(path, std::ios::binary).read(begin.data(), 128);
  return begin.find(std::string("Software\0", 9) + kProgram) != std::string::npos;
}

Picture contact_sheet(std::span<const float> images, int64_t height, int64_t width,
                      int64_t channels, const std::vector<std::string>& captions) {
  const auto count = static_cast<int64_t>(captions.size());
  const int64_t zoom = std::max<int64_t>(1, kSmallestTile / std::max(height, width));
  const int64_t tile_height = height * zoom, tile_width = width * zoom;
  const auto columns =
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(std::max<int64_t>(count, 1)))));
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t row_height = tile_height + Picture::kTextHeight + 2 * kGap;
  Picture sheet(rows * row_height + kGap, columns * (tile_width + kGap) + kGap, 255);
  std::vector<Range> ranges;
  for (int64_t c = 0; c < channels; ++c) ranges.push_back(range_of(images, channels, c));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t top = i / columns * row_height + kGap;
    const int64_t left = i % columns * (tile_width + kGap) + kGap;
    const float* image = images.data() + i * height * width * channels;
    for (int64_t y = 0; y < tile_height; ++y) {
      for (int64_t x = 0; x < tile_width; ++x) {
        const float* from = image + (y / zoom * width + x / zoom) * channels;
        uint8_t* to = sheet.at(top + y, left + x);
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t source = channels == 3 ? c : 0;
          to[c] = ranges[static_cast<size_t>(source)].pixel(from[source]);
        }
      }
    }
    sheet.write(top + tile_height + kGap / 2, left, left + tile_width,
                captions[static_cast<size_t>(i)]);
  }
  return sheet;
}

}  // namespace dltrain

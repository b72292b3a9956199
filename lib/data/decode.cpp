#include "data/decode.h"

#include <cstring>
#include <memory>
#include <string_view>

#include <spng.h>
#include <turbojpeg.h>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr std::string_view kJpegMagic = "\xFF\xD8\xFF", kPngMagic = "\x89PNG\r\n\x1A\n";

void check_size(int64_t height, int64_t width) {
  if (height < 1 || width < 1) fail(ExitCode::data, "an image of {} by {} pixels", width, height);
  if (height > kMaxImagePixels / width) {
    fail(ExitCode::data, "an image of {} by {} pixels; the maximum is {} million", width, height,
         kMaxImagePixels >> 20);
  }
}

// Each file gets a new decoder (microseconds), because a decoder keeps tables of the previous file,
// which may have been damaged.
struct JpegDecoder {
  JpegDecoder() : handle(::tjInitDecompress(), ::tjDestroy) {
    if (!handle) fail(ExitCode::memory, "out of memory for a JPEG decoder");
  }
  tjhandle get() const { return handle.get(); }
  std::string_view why() const { return ::tjGetErrorStr2(get()); }
  bool only_warned() const { return ::tjGetErrorCode(get()) == TJERR_WARNING; }

  std::unique_ptr<void, int (*)(tjhandle)> handle;
};

struct JpegHeader {
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
};

JpegHeader read_jpeg_header(const JpegDecoder& decoder, std::span<const uint8_t> file) {
  JpegHeader header;
  if (::tjDecompressHeader3(decoder.get(), file.data(), file.size(), &header.width, &header.height,
                            &header.subsampling, &header.colorspace) != 0 &&
      !decoder.only_warned()) {
    fail(ExitCode::data, "damaged JPEG: {}", decoder.why());
  }
  check_size(header.height, header.width);
  return header;
}

// Returns the smallest of 1, 1/2, 1/4 and 1/8, which are fast, that is large enough.
tjscalingfactor choose_factor(double needed) {
  int denominator = 1;
  while (denominator < 8 && 1.0 / (2 * denominator) >= needed) denominator *= 2;
  return {1, denominator};
}

void decompress(const JpegDecoder& decoder, std::span<const uint8_t> file, uint8_t* out, int width,
                int height, int format) {
  if (::tjDecompress2(decoder.get(), file.data(), file.size(), out, width, 0, height, format,
                      TJFLAG_LIMITSCANS) == 0) {
    return;
  }
  // Only the first of several warnings is known, and the code of an error after one is that of a
  // warning too. So each text that does not affect the image is listed, and the end must be there.
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  bool harmless = false;
  for (const char* text : {"extraneous bytes", "ICC marker", "Adobe color transform",
                           "JFIF revision", "Invalid SOS parameters"}) {
    harmless = harmless || decoder.why().find(text) != std::string_view::npos;
  }
  harmless = harmless && bytes.rfind("\xFF\xD9") + 1 > bytes.rfind("\xFF\xDA") + 1;
  if (!harmless) fail(ExitCode::data, "damaged JPEG: {}", decoder.why());
}

// Converts CMYK, inverted as Adobe's programs store it, to the requested channels.
void cmyk_to_rgb(const uint8_t* inks, int64_t pixels, int64_t channels, uint8_t* out) {
  for (int64_t i = 0; i < pixels; ++i, inks += 4, out += channels) {
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(inks[c] * inks[3] / 255);
    if (channels == 3) {
      std::memcpy(out, rgb, 3);
    } else {
      out[0] = static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    }
  }
}

void decode_jpeg(std::span<const uint8_t> file, int64_t channels, double needed_scale,
                 WorkingImage<uint8_t>& frame) {
  const JpegDecoder decoder;
  const JpegHeader header = read_jpeg_header(decoder, file);
  const ImageSize full{header.height, header.width, channels};
  const tjscalingfactor factor = choose_factor(needed_scale);
  const int width = TJSCALED(header.width, factor), height = TJSCALED(header.height, factor);
  const ImageSize size{height, width, channels};
  uint8_t* out = frame.start(size);
  if (header.colorspace == TJCS_CMYK || header.colorspace == TJCS_YCCK) {
    std::vector<uint8_t> inks(static_cast<size_t>(size.height * size.width * 4));
    decompress(decoder, file, inks.data(), width, height, TJPF_CMYK);
    cmyk_to_rgb(inks.data(), size.height * size.width, channels, out);
  } else {
    decompress(decoder, file, out, width, height, channels == 3 ? TJPF_RGB : TJPF_GRAY);
  }
  frame.finish(full);
}

using PngContext = std::unique_ptr<spng_ctx, void (*)(spng_ctx*)>;

void check_png(int status) {
  if (status != 0) fail(ExitCode::data, "damaged PNG: {}", ::spng_strerror(status));
}

PngContext open_png(std::span<const uint8_t> file, spng_ihdr& header) {
  PngContext context(::spng_ctx_new(0), ::spng_ctx_free);
  if (!context) fail(ExitCode::memory, "out of memory for a PNG decoder");
  constexpr size_t kMaxChunk = 16 << 20;
  check_png(::spng_set_chunk_limits(context.get(), kMaxChunk, 2 * kMaxChunk));
  check_png(::spng_set_png_buffer(context.get(), file.data(), file.size()));
  check_png(::spng_get_ihdr(context.get(), &header));
  check_size(header.height, header.width);
  return context;
}

bool is_gray(const spng_ihdr& header) {
  return header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
         header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
}

void decode_png(std::span<const uint8_t> file, int64_t channels, WorkingImage<uint8_t>& frame) {
  spng_ihdr header{};
  const PngContext context = open_png(file, header);
  const ImageSize size{header.height, header.width, channels};
  const ImageSize colors{size.height, size.width, 3};
  const auto bytes = static_cast<size_t>(colors.elements());
  uint8_t* out = frame.start(colors);
  check_png(::spng_decode_image(context.get(), out, bytes, SPNG_FMT_RGB8, 0));
  if (channels == 1) {
    for (int64_t i = 0; i < size.elements(); ++i) {
      const uint8_t* p = out + 3 * i;
      out[i] = static_cast<uint8_t>((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
    }
    frame.start(size);  // the same memory with the converted size
  }
  frame.finish();
}

}  // namespace

StoredImage probe_image(std::span<const uint8_t> file) {
  if (file.empty()) fail(ExitCode::data, "is empty");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with(kJpegMagic)) {
    const JpegHeader header = read_jpeg_header(JpegDecoder(), file);
    const int64_t channels = header.colorspace == TJCS_GRAY ? 1 : 3;
    return {ImageEncoding::jpeg, file, {header.height, header.width, channels}};
  }
  if (text.starts_with(kPngMagic)) {
    spng_ihdr header{};
    open_png(file, header);
    return {ImageEncoding::png, file, {header.height, header.width, is_gray(header) ? 1 : 3}};
  }
  fail(ExitCode::data, "is not a JPEG or PNG image");
}

void decode_image(const StoredImage& image, int64_t channels, double needed_scale,
                  WorkingImage<uint8_t>& frame) {
  switch (image.encoding) {
    case ImageEncoding::raw:
      check_internal(image.size.channels == channels &&
                         static_cast<int64_t>(image.bytes.size()) == image.size.elements(),
                     "raw image");
      frame.look_at({image.bytes.data(), image.size, image.size.width * channels});
      return;
    case ImageEncoding::jpeg:
      decode_jpeg(image.bytes, channels, needed_scale, frame);
      return;
    case ImageEncoding::png:
      decode_png(image.bytes, channels, frame);
      return;
  }
}

}  // namespace dltrain

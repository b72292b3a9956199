#include "tensor/npy.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 1 << 16;

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"<f4", DType::f32}, {"<f8", DType::f64}, {"<f2", DType::f16},
    {"<i4", DType::i32}, {"<i8", DType::i64}, {"|u1", DType::u8},
    {"|i1", DType::i8},  {"<u2", DType::u16}, {"|b1", DType::boolean}};

// The text after "'key':" in the header's dictionary, without leading spaces.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}'", key));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + key.size() + 2);
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == ':')) rest.remove_prefix(1);
  return rest;
}

// "(3, 4)": sizes of at most 2^40 each.
std::optional<std::vector<int64_t>> parse_shape(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  std::vector<int64_t> dims;
  size_t i = 1;
  while (i < text.size()) {
    if (text[i] == ')') return dims;
    if (text[i] == ' ' || text[i] == ',') {
      ++i;
      continue;
    }
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), size);
    if (error != std::errc() || size > uint64_t{1} << 40) return std::nullopt;
    dims.push_back(static_cast<int64_t>(size));
    i = static_cast<size_t>(end - text.data());
  }
  return std::nullopt;
}

}  // namespace

NpyHeader parse_npy(std::span<const std::byte> file, ExitCode on_error) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) fail(on_error, "is no .npy file");
  if (text.size() < 12) fail(on_error, "truncated: the header is missing");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(text[i])); };
  const size_t version = byte(6);
  if (version < 1 || version > 3) fail(on_error, "version {} of .npy is not read", version);
  size_t length = byte(8) | byte(9) << 8, begin = 10;
  if (version > 1) {
    length |= byte(10) << 16 | byte(11) << 24;
    begin = 12;
  }
  if (length > kMaxHeader || length > text.size() - begin) {
    fail(on_error, "truncated: a header of {} bytes is announced", length);
  }
  const std::string_view header = text.substr(begin, length);
  const auto type = value_of(header, "descr"), order = value_of(header, "fortran_order"),
             shape = value_of(header, "shape");
  const auto dims = shape ? parse_shape(*shape) : std::nullopt;
  if (!type || !order || !dims) fail(on_error, "the header is damaged");
  if (!order->starts_with("False")) fail(on_error, "is in Fortran order; save it in C order");
  if (dims->size() > Shape::kMaxRank) fail(on_error, "has {} dimensions", dims->size());
  for (const auto& [name, dtype] : kTypes) {
    if (!type->starts_with(fmt::format("'{}'", name))) continue;
    int64_t most = 1;  // as Shape counts: an extent of 0 hides no others
    for (const int64_t size : *dims) {
      if (size > 0 && most > Shape::kMaxElements / size) fail(on_error, "is too large");
      most *= std::max<int64_t>(size, 1);
    }
    const NpyHeader out{{Shape(*dims), dtype}, begin + length};
    const uint64_t bytes = out.spec.bytes(), rest = text.size() - out.data_offset;
    if (bytes != rest) {
      fail(on_error, "{} by its size: {} bytes of elements, the shape says {}",
           bytes > rest ? "truncated" : "damaged", rest, bytes);
    }
    return out;
  }
  fail(on_error,
       "has elements of type {}; f2, f4, f8, i1, i4, i8, u1, u2 and b1 in little-endian "
       "order are read",
       type->substr(0, std::min(type->find(','), size_t{12})));
}

NpyFile::NpyFile(const std::filesystem::path& path, ExitCode on_error) : file_(path, on_error) {
  try {
    header_ = parse_npy(file_.bytes(), on_error);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), path.string());
  }
}

}  // namespace dltrain

#include "tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/utf8.h"
#include "tensor/safetensors_header.h"

namespace dltrain {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the Python package refuses more
constexpr uint64_t kAlignment = 64;
constexpr const char* kMetadataKey = "__metadata__";

// The names of dtypes in files are those of dtype_name() in upper case: "F32", "BOOL".
std::string file_dtype_name(DType dtype) {
  std::string name(dtype_name(dtype));
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::optional<DType> dtype_from_file_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
    if (name == file_dtype_name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return std::nullopt;
}

struct Failure {
  const std::string& location;
  ExitCode code;

  [[noreturn]] void at(uint64_t offset, const std::string& message) const {
    throw Error(code, message, fmt::format("{} (offset {})", location, offset));
  }
};

// Checks the JSON of one tensor and converts it to an entry, whose end is begin + spec.bytes().
SafetensorsEntry checked_entry(const RawSafetensorsEntry& raw, uint64_t data_offset,
                               uint64_t data_bytes, const Failure& failure) {
  const auto refuse = [&](const std::string& what) {
    failure.at(raw.header_offset, fmt::format("tensor '{}' {}", raw.name, what));
  };
  const std::optional<DType> dtype = dtype_from_file_name(raw.dtype);
  if (!dtype) refuse(fmt::format("has the dtype '{}', which dltrain does not read", raw.dtype));
  if (raw.shape.size() > Shape::kMaxRank) {
    refuse(fmt::format("has {} dimensions, at most {} are possible", raw.shape.size(),
                       Shape::kMaxRank));
  }
  // Every partial product stays below the limit, so the multiplication cannot overflow. An extent
  // of zero does not hide a huge one beside it: strides are computed from the others.
  uint64_t elements = 1;
  constexpr uint64_t kMaxElements = Shape::kMaxElements;
  for (uint64_t extent : raw.shape) {
    if (extent > kMaxElements / std::max<uint64_t>(elements, 1)) {
      refuse(fmt::format("has the impossible shape [{}]", fmt::join(raw.shape, ", ")));
    }
    elements *= std::max<uint64_t>(extent, 1);
  }
  const std::vector<int64_t> dims(raw.shape.begin(), raw.shape.end());
  const TensorSpec spec{Shape(dims), *dtype};
  if (raw.begin > raw.end || raw.end > data_bytes) {
    refuse(fmt::format("lies at bytes [{}, {}) of the data, of which there are {}{}", raw.begin,
                       raw.end, data_bytes,
                       raw.end > data_bytes ? " (is the file truncated?)" : ""));
  }
  if (raw.end - raw.begin != spec.bytes()) {
    failure.at(
        data_offset + raw.begin,
        fmt::format("tensor '{}' of {} [{}] needs {} bytes, the header gives it {}", raw.name,
                    raw.dtype, fmt::join(raw.shape, ", "), spec.bytes(), raw.end - raw.begin));
  }
  return {raw.name, spec, raw.begin};
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& location,
                                    ExitCode on_error) {
  const Failure failure{location, on_error};
  if (is_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()})) {
    failure.at(0, kIsLfsPointer);
  }
  if (file.size() < kLengthBytes + 2) {
    failure.at(0, fmt::format("not a safetensors file: it has {} bytes, at least {} are needed",
                              file.size(), kLengthBytes + 2));
  }
  const std::string_view begin(reinterpret_cast<const char*>(file.data()), file.size());
  if (begin.starts_with("\x93NUMPY") || begin.starts_with("PK\x03\x04")) {
    failure.at(
        0, fmt::format("is {}, but a safetensors file is needed (Python: "
                       "safetensors.numpy.save_file)",
                       begin[0] == 'P' ? "a zip archive (.npz, .pt)" : "an array of NumPy (.npy)"));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  const std::string_view text = begin.substr(0, character_border(begin, 40));
  const auto is_control = [](char c) {
    return c >= 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t';
  };
  if (header_bytes > kMaxHeaderBytes && !find_invalid_utf8(text) &&
      std::ranges::none_of(text, is_control)) {
    failure.at(0, fmt::format("not a safetensors file: it begins with the text '{}'",
                              shown_line(text.substr(0, text.find('\n')))));
  }
  if (header_bytes > kMaxHeaderBytes) {
    failure.at(0, fmt::format("not a safetensors file: a header of {} bytes (at most {})",
                              header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    failure.at(0, fmt::format("truncated: a header of {} bytes is promised, {} follow",
                              header_bytes, file.size() - kLengthBytes));
  }
  const auto json = file.subspan(kLengthBytes, header_bytes);
  RawSafetensorsHeader raw;
  uint64_t error_offset = 0;
  const std::string problem = read_safetensors_json(
      {reinterpret_cast<const char*>(json.data()), json.size()}, raw, error_offset);
  if (!problem.empty()) failure.at(kLengthBytes + error_offset, problem);

  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  header.data_offset = kLengthBytes + header_bytes;
  const uint64_t data_bytes = file.size() - header.data_offset;
  header.entries.reserve(raw.entries.size());
  for (RawSafetensorsEntry& entry : raw.entries) {
    entry.header_offset += kLengthBytes;
    header.entries.push_back(checked_entry(entry, header.data_offset, data_bytes, failure));
  }
  // Empty tensors sort before the one that begins where they lie.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.spec.bytes()) < std::pair(b.begin, b.spec.bytes());
  });
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != end) {
      failure.at(
          header.data_offset + std::min(entry.begin, end),
          fmt::format(
              "tensor '{}' begins at byte {} of the data, {} byte {}", entry.name, entry.begin,
              entry.begin < end ? "inside another that ends at" : "leaving a gap from", end));
    }
    end += entry.spec.bytes();
  }
  if (end != data_bytes) {
    failure.at(header.data_offset + end,
               fmt::format("{} bytes follow the last tensor", data_bytes - end));
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ExitCode on_error)
    : path_(path),
      on_error_(on_error),
      file_(path, on_error),
      header_(parse_safetensors(file_.bytes(), path.string(), on_error)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_[header_.entries[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &header_.entries[it->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const auto& [known, index] : by_name_) {
    if (names.size() == 8) {
      names.push_back("…");
      break;
    }
    names.emplace_back(known);
  }
  throw Error(on_error_,
              fmt::format("no tensor '{}'; the file has {}: {}", name, by_name_.size(),
                          fmt::join(names, ", ")),
              path_.string());
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(header_.data_offset + entry.begin, entry.spec.bytes());
}

SafetensorsWriter::SafetensorsWriter(FileWriter& file, std::vector<NamedTensor> tensors,
                                     const SafetensorsMetadata& metadata)
    : file_(file), tensors_(std::move(tensors)) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[kMetadataKey] = metadata;
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const NamedTensor& tensor : tensors_) {
    check_internal(tensor.name != kMetadataKey && names.insert(tensor.name).second,
                   "tensor name '{}' twice or reserved", tensor.name);
    const uint64_t begin = end;
    end += tensor.spec.bytes();
    // push_back, not operator[]: an ordered_json looks a key up in linear time.
    auto& object = json.get_ref<nlohmann::ordered_json::object_t&>();
    object.emplace_back(tensor.name,
                        nlohmann::ordered_json{{"dtype", file_dtype_name(tensor.spec.dtype)},
                                               {"shape", tensor.spec.shape.list()},
                                               {"data_offsets", {begin, end}}});
  }
  std::string header = json_text(json);
  header.append((kAlignment - (kLengthBytes + header.size()) % kAlignment) % kAlignment, ' ');
  const uint64_t header_bytes = header.size();
  file_.write(std::as_bytes(std::span(&header_bytes, 1)));
  file_.write(header);
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < tensors_.size() && written_ == tensors_[current_].spec.bytes()) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  check_internal(current_ < tensors_.size() && tensors_[current_].name == name,
                 "tensor '{}' written out of order in {}", name, file_.path().string());
  check_internal(bytes.size() <= tensors_[current_].spec.bytes() - written_,
                 "too many bytes for tensor '{}'", name);
  file_.write(bytes);
  written_ += bytes.size();
  skip_complete();
}

void SafetensorsWriter::finish() {
  check_internal(current_ == tensors_.size(), "tensor '{}' was not written completely",
                 current_ < tensors_.size() ? tensors_[current_].name : "");
}

}  // namespace dltrain

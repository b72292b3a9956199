#include "telemetry/tensorboard.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "telemetry/metrics.h"
#include "telemetry/record_file.h"

namespace dltrain {
namespace {

constexpr uint64_t kMaxEventBytes = uint64_t{4} << 30;
constexpr int kBuckets = 64;

// Numbers of fields in the messages.
enum Event { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum Summary { kValue = 1 };
enum Value { kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9 };
enum Image { kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4 };
enum Histogram { kMin = 1, kMax, kNum, kSum, kSumSquares, kBucketLimit, kBucket };
enum Metadata { kPluginData = 1 };
enum PluginData { kPluginName = 1, kContent = 2 };
enum HParams { kSessionStart = 3, kSessionEnd = 4 };
enum SessionStart { kHParams = 1, kStartTime = 5 };
enum SessionEnd { kStatus = 1, kEndTime = 2 };
enum MapEntry { kMapKey = 1, kMapValue = 2 };
enum StructValue { kNumberValue = 2, kTextValue = 3, kBoolValue = 4 };
constexpr int64_t kSuccess = 1;
enum Tensor { kDType = 1, kShape = 2, kStringValue = 8 };
constexpr int64_t kStringDType = 7;

FileWriter open_events(const std::filesystem::path& path, std::optional<int64_t> resumed_step) {
  make_directories(path.parent_path());
  std::error_code ignored;
  if (!resumed_step || !std::filesystem::exists(path, ignored)) return FileWriter(path);
  const std::string text = read_file(path, kMaxEventBytes, ExitCode::storage);
  size_t keep = 0;
  for (const Record& record : read_records(text)) {
    if (event_step(record.bytes) > *resumed_step) break;
    keep = record.end;
  }
  if (keep == 0) return FileWriter(path);
  if (keep < text.size()) truncate_file(path, keep);
  return FileWriter(path, /*append=*/true);
}

bool has_no_bytes(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::file_size(path, ignored) == 0;
}

// Buckets of equal width between the least and the greatest value.
struct Counts {
  double least = INFINITY, greatest = -INFINITY, sum = 0, squares = 0;
  int64_t number = 0, not_finite = 0;
  std::array<double, kBuckets> limits{}, counts{};
};

Counts count(std::span<const float> values) {
  Counts out;
  for (float value : values) {
    if (!std::isfinite(value)) {
      ++out.not_finite;
      continue;
    }
    const double v = value;
    out.least = std::min(out.least, v);
    out.greatest = std::max(out.greatest, v);
    out.sum += v;
    out.squares += v * v;
    ++out.number;
  }
  if (out.number == 0) return out;
  // If all values are equal, the limit of the first bucket must be above them.
  const double range = out.greatest - out.least;
  const double width = range > 0 ? range / kBuckets : std::max(1e-12, std::abs(out.least) * 1e-6);
  for (int i = 0; i < kBuckets; ++i) {
    out.limits[static_cast<size_t>(i)] = out.least + width * (i + 1);
  }
  for (float value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = static_cast<int>((value - out.least) / width);
    ++out.counts[static_cast<size_t>(std::clamp(bucket, 0, kBuckets - 1))];
  }
  return out;
}

// google.protobuf.Value
ProtobufMessage struct_value(const std::string& yaml) {
  ProtobufMessage out;
  char* end = nullptr;
  const double number = std::strtod(yaml.c_str(), &end);
  if (yaml == "true" || yaml == "false") return out.integer(kBoolValue, yaml == "true");
  if (!yaml.empty() && *end == '\0') return out.number(kNumberValue, number);
  return out.text(kTextValue, yaml);
}

ProtobufMessage tagged(std::string_view tag) {
  return ProtobufMessage().text(kTag, tag);
}

}  // namespace

std::filesystem::path event_file(const std::filesystem::path& folder) {
  return folder / "events.out.tfevents.dltrain";
}

// Events of this writer begin with the time, a fixed-size field, and the step.
int64_t event_step(std::string_view event) {
  constexpr size_t kAfterTime = 1 + sizeof(double);
  uint64_t step = 0;
  if (event.size() <= kAfterTime || event[kAfterTime] != kStep << 3) return 0;
  for (size_t i = kAfterTime + 1, shift = 0; i < event.size() && shift < 63; ++i, shift += 7) {
    step |= (uint64_t{static_cast<uint8_t>(event[i])} & 0x7F) << shift;
    if ((event[i] & 0x80) == 0) break;
  }
  return static_cast<int64_t>(step);
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder,
                                     std::optional<int64_t> resumed_step,
                                     std::function<double()> now)
    : now_(now ? std::move(now) : unix_time), file_(open_events(event_file(folder), resumed_step)) {
  if (!has_no_bytes(event_file(folder))) return;
  write(ProtobufMessage().number(kWallTime, now_()).text(kFileVersion, "brain.Event:2"));
}

void TensorBoardWriter::write(const ProtobufMessage& event) {
  file_.write(framed_record(event.bytes()));
}

void TensorBoardWriter::add_value(int64_t step, const ProtobufMessage& value) {
  ProtobufMessage summary, event;
  summary.message(kValue, value);
  event.number(kWallTime, now_()).integer(kStep, step).message(kSummary, summary);
  write(event);
}

void TensorBoardWriter::add_scalar(int64_t step, std::string_view tag, double value) {
  add_value(step, tagged(tag).number32(kSimpleValue, static_cast<float>(value)));
}

void TensorBoardWriter::add_histogram(int64_t step, std::string_view tag,
                                      std::span<const float> values) {
  const Counts c = count(values);
  if (c.not_finite > 0) {
    add_scalar(step, std::string(tag) + "_not_finite", static_cast<double>(c.not_finite));
  }
  if (c.number == 0) return;
  ProtobufMessage histogram;
  histogram.number(kMin, c.least)
      .number(kMax, c.greatest)
      .number(kNum, static_cast<double>(c.number))
      .number(kSum, c.sum)
      .number(kSumSquares, c.squares)
      .packed(kBucketLimit, c.limits)
      .packed(kBucket, c.counts);
  add_value(step, tagged(tag).message(kHistogram, histogram));
}

void TensorBoardWriter::add_image(int64_t step, std::string_view tag, int64_t height, int64_t width,
                                  std::string_view png) {
  ProtobufMessage out;
  out.integer(kHeight, height).integer(kWidth, width).integer(kColorspace, 3).text(kEncoded, png);
  add_value(step, tagged(tag).message(kImage, out));
}

void TensorBoardWriter::add_text(int64_t step, std::string_view tag, std::string_view text) {
  ProtobufMessage metadata, tensor;
  metadata.message(kPluginData, ProtobufMessage().text(kPluginName, "text"));
  tensor.integer(kDType, kStringDType).message(kShape, {}).text(kStringValue, text);
  add_value(step, tagged(tag).message(kTensor, tensor).message(kMetadata, metadata));
}

void TensorBoardWriter::add_plugin_data(int64_t step, std::string_view tag,
                                        const ProtobufMessage& data) {
  const auto plugin = ProtobufMessage().text(kPluginName, "hparams").message(kContent, data);
  const auto metadata = ProtobufMessage().message(kPluginData, plugin);
  add_value(step, tagged(tag).message(kMetadata, metadata));
}

void TensorBoardWriter::add_hparams(std::span<const std::pair<std::string, std::string>> keys) {
  ProtobufMessage session, data;
  for (const auto& [key, value] : keys) {
    ProtobufMessage entry;
    entry.text(kMapKey, key).message(kMapValue, struct_value(value));
    session.message(kHParams, entry);
  }
  session.number(kStartTime, now_());
  add_plugin_data(0, "_hparams_/session_start_info", data.message(kSessionStart, session));
}

void TensorBoardWriter::add_end(int64_t step) {
  ProtobufMessage session, data;
  session.integer(kStatus, kSuccess).number(kEndTime, now_());
  add_plugin_data(step, "_hparams_/session_end_info", data.message(kSessionEnd, session));
}

}  // namespace dltrain

#include "telemetry/wandb.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "base/json.h"
#include "base/owned_files.h"
#include "base/version.h"
#include "config/diff.h"
#include "telemetry/metrics.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Numbers of the fields of wandb_internal.proto.
constexpr int kNumField = 1, kHistoryField = 2, kSummaryField = 3, kRunField = 17, kExitField = 18,
              kHeaderField = 21;
constexpr int kKey = 1, kNestedKey = 2, kValueJson = 16;
constexpr size_t kBlock = 32768, kFrame = 7;
constexpr std::string_view kPrefix = "offline-run-";

// A value of the configuration, written as YAML, as JSON.
std::string config_value(const std::string& text) {
  const Json parsed = try_parse_json(text);
  return json_text(parsed.is_discarded() ? Json(text) : parsed);
}

ProtobufMessage config_record(const std::string& dump) {
  ProtobufMessage out;
  for (const ConfigDifference& key : keys_of_dump(dump)) {
    out.message(1,
                ProtobufMessage().text(kKey, key.path).text(kValueJson, config_value(key.after)));
  }
  return out;
}

std::string date_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
  return text.data();
}

// The folder of an earlier attempt of this run, or a new one, named by time and a hash of both.
fs::path folder_in(const fs::path& parent, double now) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (entry.path().filename().string().starts_with(kPrefix)) found.push_back(entry.path());
  }
  if (!found.empty()) return *std::ranges::min_element(found);
  const std::string name = fs::absolute(parent).string() + fmt::format("{:.6f}", now);
  const uLong hash =
      crc32(0, reinterpret_cast<const Bytef*>(name.data()), static_cast<uInt>(name.size()));
  return parent / fmt::format("{}{}-{:08x}", kPrefix, date_text(now), hash);
}

}  // namespace

// The first failure closes the file.
template <typename Work>
std::string WandbRun::guarded(Work work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    file_.reset();
    return fmt::format("{}; nothing more is written for wandb", error.what());
  }
}

std::string WandbRun::open(const fs::path& run, const WandbInfo& info) {
  return guarded([&] { begin(run, info); });
}

void WandbRun::begin(const fs::path& run, const WandbInfo& info) {
  started_ = unix_time();
  std::vector<std::string> lines;
  std::ifstream metrics(run / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) lines.push_back(line);
  if (!lines.empty()) {
    const Json first = try_parse_json(lines[0]);
    if (first.is_object() && first.contains("time") && first["time"].is_number()) {
      started_ = first["time"].get<double>();
    }
  }
  folder_ = folder_in(run / "wandb", started_);
  id_ = folder_.filename().string().substr(folder_.filename().string().rfind('-') + 1);
  const fs::path path = folder_ / fmt::format("run-{}.wandb", id_);
  make_directories(folder_);
  claim_files(run, {path.lexically_relative(run).string()});
  file_ = std::make_unique<FileWriter>(path);
  const std::string begin("\x3aW&B\xe1\xbe\x00", 7);
  file_->write(begin);
  bytes_ = begin.size();
  const auto version =
      ProtobufMessage().text(1, fmt::format("dltrain {}", dltrain::version())).text(2, "0.70.0");
  write(ProtobufMessage().message(kHeaderField, ProtobufMessage().message(1, version)));
  ProtobufMessage record;
  record.text(1, id_);
  if (!info.entity.empty()) record.text(2, info.entity);
  record.text(3, info.project).message(4, config_record(info.config)).text(8, info.name);
  if (!info.notes.empty()) record.text(9, info.notes);
  for (const std::string& tag : info.tags) record.text(10, tag);
  const auto seconds = static_cast<int64_t>(started_);
  record.text(13, info.host)
      .message(
          17,
          ProtobufMessage()
              .integer(1, seconds)
              .integer(2, static_cast<int64_t>(1e9 * (started_ - static_cast<double>(seconds)))));
  write(ProtobufMessage().message(kRunField, record));
  for (const std::string& line : lines) take(line);
}

std::string WandbRun::add(std::string_view line) {
  if (!file_) return "";
  return guarded([&] { take(line); });
}

void WandbRun::take(std::string_view line) {
  const Json json = try_parse_json(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return;
  const auto step = json["step"].get<int64_t>();
  if (step != step_) write_row();
  step_ = step;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_number() || key == "step") continue;
    const auto known = std::ranges::find(row_, key, &std::pair<std::string, std::string>::first);
    if (known != row_.end()) row_.erase(known);
    row_.emplace_back(key, json_text(value));
  }
}

// A row of the history, which is also the newest summary.
void WandbRun::write_row() {
  if (step_ < 0) return;
  const auto time = std::ranges::find(row_, "time", &std::pair<std::string, std::string>::first);
  const double now = time == row_.end() ? started_ : std::stod(time->second);
  if (time != row_.end()) row_.erase(time);
  row_.emplace_back("_timestamp", json_text(Json(now)));
  row_.emplace_back("_runtime", json_text(Json(std::max(0.0, now - started_))));
  row_.emplace_back("_step", std::to_string(step_));
  ProtobufMessage history, summary;
  for (const auto& [key, value] : row_) {
    const auto item = ProtobufMessage().text(kNestedKey, key).text(kValueJson, value);
    history.message(1, item);
    summary.message(1, item);
  }
  history.message(2, ProtobufMessage().integer(1, step_));
  write(ProtobufMessage().message(kSummaryField, summary));
  write(ProtobufMessage().message(kHistoryField, history));
  row_.clear();
  step_ = -1;
}

std::string WandbRun::finish(int exit_code) {
  if (!file_) return "";
  return guarded([&] {
    write_row();
    write(ProtobufMessage().message(kExitField, ProtobufMessage().integer(1, exit_code)));
    file_->close();
    file_.reset();
  });
}

// Appends a record: in one piece, or cut at the borders of blocks.
void WandbRun::write(ProtobufMessage record) {
  record.integer(kNumField, ++records_);
  std::string_view rest = record.bytes();
  for (bool first = true; first || !rest.empty(); first = false) {
    const size_t left = kBlock - bytes_ % kBlock;
    if (left < kFrame) {
      file_->write(std::string(left, '\0'));
      bytes_ += left;
    }
    const size_t room = kBlock - bytes_ % kBlock - kFrame;
    const std::string_view part = rest.substr(0, std::min(room, rest.size()));
    rest.remove_prefix(part.size());
    // Whole, first, middle, last.
    const char type = first ? (rest.empty() ? 1 : 2) : (rest.empty() ? 4 : 3);
    uLong check = crc32(0, reinterpret_cast<const Bytef*>(&type), 1);
    check =
        crc32(check, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    std::string frame;
    for (int shift = 0; shift < 32; shift += 8) {
      frame += static_cast<char>(static_cast<uint8_t>(check >> shift));
    }
    frame += static_cast<char>(part.size() & 0xFF);
    frame += static_cast<char>(part.size() >> 8);
    frame += type;
    file_->write(frame);
    file_->write(part);
    bytes_ += kFrame + part.size();
  }
}

}  // namespace dltrain

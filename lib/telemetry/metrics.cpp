#include "telemetry/metrics.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/owned_files.h"

namespace dltrain {
namespace {

constexpr uint64_t kMaxMetricsBytes = uint64_t{4} << 30;

FileWriter open_metrics(const std::filesystem::path& path, std::optional<int64_t> resumed_step,
                        bool evaluation_due) {
  std::error_code ignored;
  if (!resumed_step || !std::filesystem::exists(path, ignored)) return FileWriter(path);
  const std::string text = read_file(path, kMaxMetricsBytes, ExitCode::storage);
  const size_t keep = metrics_to_keep(text, *resumed_step, evaluation_due);
  if (keep < text.size()) truncate_file(path, keep);
  return FileWriter(path, /*append=*/true);
}

// Returns false if the run, resumed after `step`, writes this line again.
bool is_line_to_keep(std::string_view line, int64_t step, bool evaluation_due) {
  const auto json = try_parse_json(line);
  if (!json.is_object()) return false;
  const auto found = json.find("step");
  if (found == json.end()) return true;
  if (!found->is_number_integer() || found->get<int64_t>() > step) return false;
  const bool again = json.contains("eval_samples") || json.contains("prompt");
  return !(evaluation_due && again && found->get<int64_t>() == step);
}

}  // namespace

EarlierAttempts earlier_attempts(const std::filesystem::path& metrics) {
  EarlierAttempts out;
  std::error_code ignored;
  if (!std::filesystem::exists(metrics, ignored)) return out;
  const std::string text = read_file(metrics, kMaxMetricsBytes, ExitCode::storage);
  const size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return out;
  const size_t begin = text.rfind('\n', end - 1) + 1;  // npos + 1 is 0
  const auto first = try_parse_json(text.substr(0, text.find('\n')));
  const auto last = try_parse_json(text.substr(begin, end - begin));
  const auto number = [](const nlohmann::json& line, const char* key, double otherwise) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  out.attempts = static_cast<int64_t>(std::clamp(number(last, "attempt", 1), 1.0, 1e9));
  out.first = number(first, "time", 0);
  out.last = number(last, "time", 0);
  return out;
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::optional<int64_t> resumed_step,
                             bool evaluation_due)
    : file_(open_metrics(path, resumed_step, evaluation_due)) {}

void MetricsWriter::write(const JsonObject& object) {
  if (replace_deleted(file_)) {
    log_warning("{} was deleted during the run; a new file was created", file_.path().string());
  }
  file_.write(object.text() + "\n");
}

size_t metrics_to_keep(std::string_view text, int64_t step, bool evaluation_due) {
  size_t keep = 0;
  while (keep < text.size()) {
    const size_t end = text.find('\n', keep);
    if (end == std::string_view::npos) break;
    if (!is_line_to_keep(text.substr(keep, end - keep), step, evaluation_due)) break;
    keep = end + 1;
  }
  return keep;
}

void write_summary(const std::filesystem::path& path, const JsonObject& summary) {
  write_file_atomically(path, summary.text() + "\n");
}

}  // namespace dltrain

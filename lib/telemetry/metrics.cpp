#include "telemetry/metrics.h"

#include <cerrno>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "base/owned_files.h"
#include "base/system_calls.h"

namespace dltrain {
namespace {

constexpr uint64_t kMaxMetricsBytes = uint64_t{4} << 30;

FileWriter open_metrics(const std::filesystem::path& path, std::optional<int64_t> resumed_step) {
  std::error_code ignored;
  if (!resumed_step || !std::filesystem::exists(path, ignored)) return FileWriter(path);
  const std::string text = read_file(path, kMaxMetricsBytes, ExitCode::storage);
  const size_t keep = metrics_to_keep(text, *resumed_step);
  if (keep < text.size()) truncate_file(path, keep);
  return FileWriter(path, /*append=*/true);
}

// Whether the run, resumed after `step`, would write this line again.
bool is_line_to_keep(std::string_view line, int64_t step) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto found = json.find("step");
  return found == json.end() || (found->is_number_integer() && found->get<int64_t>() <= step);
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::optional<int64_t> resumed_step)
    : file_(open_metrics(path, resumed_step)) {}

void MetricsWriter::write(const JsonObject& object) {
  if (replace_deleted(file_)) {
    spdlog::warn("{} was deleted while this run writes to it; a new one begins here",
                 file_.path().string());
  }
  file_.write(object.text() + "\n");
}

size_t metrics_to_keep(std::string_view text, int64_t step) {
  size_t keep = 0;
  while (keep < text.size()) {
    const size_t end = text.find('\n', keep);
    if (end == std::string_view::npos) break;
    if (!is_line_to_keep(text.substr(keep, end - keep), step)) break;
    keep = end + 1;
  }
  return keep;
}

void write_summary(const std::filesystem::path& path, const JsonObject& summary) {
  write_file_atomically(path, summary.text() + "\n");
}

}  // namespace dltrain

#include "telemetry/prometheus.h"

#include <cctype>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace dltrain {
namespace {

constexpr std::string_view kFirstLine = "# Written by dltrain", kLabel = "{run=\"";

// Names consist of letters, digits and underscores.
std::string metric_name(const std::string& key) {
  std::string out = "dltrain_";
  for (const char c : key) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

std::string label_text(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

}  // namespace

PrometheusFile::PrometheusFile(std::filesystem::path path, const std::string& run)
    : path_(std::move(path)), run_(label_text(run)) {}

void PrometheusFile::check(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::string line;
  std::ifstream in(path);
  if (!std::getline(in, line) || line != kFirstLine) {
    fail(ExitCode::usage, "logging.prometheus: {} exists and is not a file of dltrain's metrics",
         path.string());
  }
}

std::string PrometheusFile::update(const JsonObject& line) {
  const auto fields = parse_json(line.text());
  for (const auto& [key, value] : fields.items()) {
    if (value.is_number()) values_[metric_name(key)] = json_text(value);
    if (value.is_null()) values_[metric_name(key)] = "NaN";
  }
  const auto now = std::chrono::steady_clock::now();
  return now - written_ < std::chrono::seconds(1) ? "" : write();
}

// Returns the run that has replaced what this one has written, or "".
std::string PrometheusFile::other_run() const {
  if (last_.empty() || !is_file(path_)) return "";
  std::ifstream in(path_);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t begin = text.find(kLabel);
  if (text.ends_with(last_) || begin == text.npos) return "";
  const size_t name = begin + kLabel.size();
  return text.substr(name, text.find("\"} ", name) - name);
}

std::string PrometheusFile::write() {
  written_ = std::chrono::steady_clock::now();
  const std::string other = shared_ ? "" : other_run();
  shared_ = shared_ || !other.empty();
  std::string text(kFirstLine);
  text += '\n';
  for (const auto& [name, value] : values_) {
    text += fmt::format("# TYPE {0} gauge\n{0}{1}{2}\"}} {3}\n", name, kLabel, run_, value);
  }
  try {
    // Without the ending .prom, so that collectors do not read it.
    write_file_atomically(path_, text, fmt::format("-{}", getpid()));
    last_ = std::move(text);
    if (other.empty()) return "";
    return fmt::format(
        "logging.prometheus: {} is written by the run {} and by this one ({}), each over the "
        "other; give each run a file of its own",
        path_.string(), other, run_);
  } catch (const Error& error) {
    if (std::exchange(failed_, true)) return "";
    return fmt::format("logging.prometheus: {}", error.what());
  }
}

}  // namespace dltrain

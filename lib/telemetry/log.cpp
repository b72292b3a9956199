#include "telemetry/log.h"

#include <mutex>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/owned_files.h"
#include "base/utf8.h"

namespace dltrain {
namespace {

// The source of the lines of log_progress().
constexpr const char* kProgress = "progress";

// Console lines have no time stamp, and a prefix only if they are no plain messages.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  ConsoleSink(Console& console, std::string prefix)
      : console_(console), prefix_(std::move(prefix)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (console_.terminal() && message.source.funcname == kProgress) return;
    std::string_view word, color;
    switch (message.level) {
      case spdlog::level::warn:
        word = "warning: ", color = "\x1b[33m";
        break;
      case spdlog::level::err:
      case spdlog::level::critical:
        word = "error: ", color = "\x1b[31m";
        break;
      case spdlog::level::debug:
      case spdlog::level::trace:
        word = "debug: ", color = "\x1b[2m";
        break;
      default:
        break;
    }
    std::string line = prefix_;
    if (console_.color() && !word.empty()) {
      line.append(color).append(word).append("\x1b[0m");
    } else {
      line += word;
    }
    line += printable({message.payload.data(), message.payload.size()});
    console_.print(line);
  }
  void flush_() override {}

 private:
  Console& console_;
  std::string prefix_;
};

// log.txt, line by line.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(const std::filesystem::path& path) : file_(path, /*append=*/true) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    replace_deleted(file_);
    file_.write(printable({line.data(), line.size()}));
  }
  void flush_() override {}

 private:
  FileWriter file_;
};

}  // namespace

LogLevel log_level_from_name(std::string_view name) {
  using enum LogLevel;
  constexpr std::pair<std::string_view, LogLevel> kNames[] = {
      {"trace", trace},  {"debug", debug}, {"info", info}, {"warning", warning},
      {"warn", warning}, {"error", error}, {"off", off}};
  for (const auto& [known, level] : kNames) {
    if (known == name) return level;
  }
  fail(ExitCode::usage, "unknown log level '{}'; known: trace, debug, info, warning, error, off",
       name);
}

void set_up_log(const LogOptions& options, Console& console) {
  const std::string prefix =
      options.rank > 0 && !options.marked ? fmt::format("[rank {}] ", options.rank) : "";
  auto on_console = std::make_shared<ConsoleSink>(console, prefix);
  const auto level = static_cast<spdlog::level::level_enum>(options.level);
  on_console->set_level(options.quiet ? std::max(level, spdlog::level::warn) : level);
  std::vector<spdlog::sink_ptr> sinks{on_console};
  if (options.run_folder && options.rank == 0) {
    auto in_file = std::make_shared<FileSink>(*options.run_folder / "log.txt");
    in_file->set_pattern("%Y-%m-%d %H:%M:%S.%e %-7l %v");
    in_file->set_level(level);
    sinks.push_back(std::move(in_file));
  }
  auto logger = std::make_shared<spdlog::logger>("dltrain", sinks.begin(), sinks.end());
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void log_progress(const std::string& line) {
  spdlog::log(spdlog::source_loc{"", 0, kProgress}, spdlog::level::info, line);
}

}  // namespace dltrain

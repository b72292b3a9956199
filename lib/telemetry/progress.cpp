#include "telemetry/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

constexpr int kNarrowestBar = 8, kWidestBar = 40;
constexpr double kBarSeconds = 0.1;  // minimum time between two updates of the bar
// A rate is shown after this number of steps or this time.
constexpr int64_t kTimedSteps = 5;
constexpr double kTimedSeconds = 1;

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string format_time(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

Progress::Progress(Console& console, ProgressOptions options)
    : console_(console),
      options_(std::move(options)),
      begin_(options_.now()),
      shown_(begin_ - std::chrono::hours(1)),
      timed_from_(begin_),
      done_(options_.first) {}

Progress::~Progress() {
  if (!ended_) console_.clear_status();
}

void Progress::count(int64_t done) {
  done_ = done;
  if (timed_step_ >= 0) return;
  timed_step_ = done;
  timed_from_ = options_.now();
}

void Progress::update(int64_t done, const std::function<std::string()>& detail) {
  count(done);
  if (options_.quiet || ended_ || !console_.terminal()) return;
  const auto now = options_.now();
  if (seconds_between(shown_, now) < kBarSeconds) return;
  shown_ = now;
  const std::string begin = head(), end = tail(detail());
  // The bar takes the remaining columns; a narrow terminal has no bar.
  // 4: the last column, the blank before the bar, and its brackets in ASCII.
  const int room = console_.width() - 4 - static_cast<int>(character_count(begin + end));
  const int columns = std::min(room, kWidestBar);
  console_.set_status(columns < kNarrowestBar ? begin + end : begin + " " + bar(columns) + end);
}

std::string Progress::line(int64_t done, const std::string& detail) {
  count(done);
  return head() + tail(detail);
}

void Progress::finish(const std::string& detail) {
  if (ended_) return;
  ended_ = true;
  console_.clear_status();
  if (!options_.quiet && console_.terminal()) console_.print(head() + tail(detail));
}

std::string Progress::head() const {
  const int64_t total = std::max<int64_t>(options_.total, 1);
  const int percent = static_cast<int>(std::clamp<int64_t>(done_ * 100 / total, 0, 100));
  return fmt::format("{} {:3}%", options_.label, percent);
}

std::string Progress::tail(const std::string& detail) const {
  std::string text = fmt::format(" {}/{}", done_, options_.total);
  if (!detail.empty()) text += "  " + detail;
  const double elapsed = seconds_between(timed_from_, options_.now());
  const int64_t timed = done_ - timed_step_;
  const bool enough = timed >= kTimedSteps || elapsed >= kTimedSeconds;
  if (timed > 0 && elapsed > 0 && enough) {
    const double rate = static_cast<double>(timed) / elapsed;
    // Rates below one step per second are shown as seconds per step.
    text += rate >= 1 ? fmt::format("  {:.1f} steps/s", rate)
                      : fmt::format("  {:.1f} s/step", 1 / rate);
    if (!ended_ && done_ < options_.total) {
      text += fmt::format("  {} left",
                          format_duration(static_cast<double>(options_.total - done_) / rate));
    }
  }
  if (ended_) text += "  " + format_time(seconds_between(begin_, options_.now()));
  return text;
}

std::string Progress::bar(int columns) const {
  const double part = std::clamp(
      static_cast<double>(done_) / static_cast<double>(std::max<int64_t>(options_.total, 1)), 0.0,
      1.0);
  const int halves = static_cast<int>(part * columns * 2);
  const int full = halves / 2;
  std::string text;
  if (console_.utf8()) {
    text = repeat("━", full) + (halves % 2 ? "╸" : "");
  } else {
    text = repeat("=", full) + (halves % 2 ? "-" : "");
  }
  const std::string rest(static_cast<size_t>(columns - full - halves % 2), ' ');
  if (!console_.utf8()) return "[" + text + rest + "]";
  return console_.color() ? "\x1b[36m" + text + "\x1b[0m" + rest : text + rest;
}

}  // namespace dltrain

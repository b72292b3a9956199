#include "telemetry/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

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

int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

constexpr int kNarrowestBar = 8, kWidestBar = 40;

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

Progress::Progress(Console& console, ProgressOptions options)
    : console_(console),
      options_(std::move(options)),
      begin_(options_.now()),
      shown_(begin_),
      done_(options_.first) {}

Progress::~Progress() {
  if (!ended_) console_.clear_status();
}

void Progress::update(int64_t done, const std::function<std::string()>& detail) {
  done_ = done;
  if (options_.quiet || ended_) return;
  const auto now = options_.now();
  const double wait = console_.terminal() ? options_.bar_seconds : options_.line_seconds;
  if (shown_any_ && seconds_between(shown_, now) < wait) return;
  shown_ = now;
  show(detail(), !console_.terminal());
}

void Progress::finish(const std::string& detail) {
  if (ended_) return;
  ended_ = true;
  console_.clear_status();
  if (!options_.quiet) show(detail, true);
}

void Progress::show(const std::string& detail, bool as_line) {
  shown_any_ = true;
  const double elapsed = seconds_between(begin_, options_.now());
  const int64_t own = done_ - options_.first;
  const double rate = elapsed > 0 ? static_cast<double>(own) / elapsed : 0;
  const int64_t total = std::max<int64_t>(options_.total, 1);
  const int percent = static_cast<int>(std::clamp<int64_t>(done_ * 100 / total, 0, 100));
  const std::string head = fmt::format("{} {:3}%", options_.label, percent);
  std::string tail = fmt::format(" {}/{}", done_, options_.total);
  if (!detail.empty()) tail += "  " + detail;
  if (own > 0 && rate > 0) {
    // Slow steps read better as seconds.
    tail += rate >= 1 ? fmt::format("  {:.1f} steps/s", rate)
                      : fmt::format("  {:.1f} s/step", 1 / rate);
    tail += ended_
                ? fmt::format("  {} in all", format_duration(elapsed))
                : fmt::format("  {} left",
                              format_duration(static_cast<double>(options_.total - done_) / rate));
  }
  if (as_line) {
    console_.print(head + tail);
    return;
  }
  // Whatever the rest leaves belongs to the bar; on a narrow terminal there is none.
  // 4: the last column, the blank before the bar, and its brackets in ASCII.
  const int room = console_.width() - 4 - columns_of(head) - columns_of(tail);
  const int columns = std::min(room, kWidestBar);
  console_.set_status(columns < kNarrowestBar ? head + tail : head + " " + bar(columns) + tail);
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

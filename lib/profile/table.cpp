#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "profile/report.h"
#include "telemetry/console.h"

namespace dltrain {
namespace {

constexpr int kNameColumns = 36, kDetailColumns = 22, kShapeColumns = 100;
constexpr double kShown = 0.5e-6;  // seconds; shorter shares read 0.000 ms

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f} ms", 1e3 * seconds);
}

std::string rate(double per_second, const char* unit) {
  if (per_second >= 1e12) return fmt::format("{:.1f} T{}", per_second / 1e12, unit);
  return fmt::format("{:.1f} G{}", per_second / 1e9, unit);
}

std::string cell(double value, int decimals = 1) {
  return value > 0 ? fmt::format("{:.{}f}", value, decimals) : "-";
}

// Pads or truncates text to `columns` code points.
std::string padded(std::string_view text, int columns) {
  const std::string_view cut = cut_to_width(text, columns);
  return std::string(cut) + std::string(static_cast<size_t>(columns) - character_count(cut), ' ');
}

class Table {
 public:
  Table(const ProfileReport& report, const TableOptions& options)
      : report_(report), options_(options), step_(report.profile.step_seconds) {}

  std::string text() {
    add_head();
    add_shares();
    add_ranks();
    add_rows("ops", report_.profile.ops, false);
    add_layers();
    add_rows("calls", report_.profile.calls, true);
    add_gaps();
    heading("verdict:");
    for (const std::string& sentence : verdicts(report_)) line("  {}", sentence);
    return std::move(text_);
  }

 private:
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    while (text_.ends_with(' ')) text_.pop_back();
    text_ += '\n';
  }
  void heading(const std::string& text) {
    text_ += options_.bold ? "\x1b[1m" + text + "\x1b[0m\n" : text + "\n";
  }
  double percent(double seconds) const { return step_ > 0 ? 100 * seconds / step_ : 0; }

  void add_head() {
    const ProfileReport& r = report_;
    if (!r.note.empty()) line("{}", r.note);
    line("device: {}{}", r.device,
         r.threads > 0 ? fmt::format(", {} thread{}", r.threads, r.threads == 1 ? "" : "s") : "");
    line("limit: {} in f32{}, {} of memory ({})", rate(r.limits.flops_f32, "FLOP/s"),
         r.limits.flops_low > 0
             ? fmt::format(", {} in {}", rate(r.limits.flops_low, "FLOP/s"), r.arithmetic)
             : "",
         rate(r.limits.bytes, "B/s"), r.limits.source);
    const double plain = r.plain_step_seconds;
    line("step: {} ({} steps after {} of warm-up), {:.0f} samples/s", milliseconds(plain),
         r.profile.steps, r.warmup,
         plain > 0 ? static_cast<double>(r.samples_per_step) / plain : 0);
    if (r.utilization() > 0) {
      line("model: {:.4g} GFLOP per step; MFU {:.1f} % of the limit in {}", r.model_flops / 1e9,
           100 * r.utilization(), r.arithmetic);
    }
    if (r.watts > 0) line("power: {:.0f} W, {:.3g} J per sample", r.watts, r.joules_per_sample());
    line("observed: {} per step ({:+.1f} %), by {}", milliseconds(step_),
         plain > 0 ? 100 * (step_ / plain - 1) : 0, r.method);
  }

  void add_shares() {
    heading("time of the observed step:");
    for (const StepShare& share : report_.profile.shares) {
      if (share.seconds < kShown && percent(share.seconds) < 0.05) continue;
      line("  {:<14} {:>12} {:>6.1f} %   {}", share.name, milliseconds(share.seconds),
           percent(share.seconds), share.meaning);
    }
  }

  void add_ranks() {
    if (report_.ranks.size() < 2) return;
    heading("the same for every rank, in ms:");
    std::string names;
    for (const StepShare& share : report_.profile.shares) {
      names += fmt::format(" {:>13}", share.name);
    }
    line("  {:<6} {:>9}{}", "rank", "step", names);
    for (size_t rank = 0; rank < report_.ranks.size(); ++rank) {
      std::string cells;
      for (double seconds : report_.ranks[rank].seconds) {
        cells += fmt::format(" {:>13.3f}", 1e3 * seconds);
      }
      line("  {:<6} {:>9.3f}{}", rank, 1e3 * report_.ranks[rank].step_seconds, cells);
    }
  }

  void columns(const char* name, const char* detail) {
    line("  {} {} {:>6} {:>10} {:>7} {:>9} {:>8} {:>9}", padded(name, kNameColumns),
         padded(detail, kDetailColumns), "calls", "ms", "share", "GFLOP/s", "GB/s", "of limit");
  }

  void add_row(const ProfileRow& row) {
    line("  {} {} {:>6} {:>10.3f} {:>5.1f} % {:>9} {:>8} {:>9}", padded(row.name, kNameColumns),
         padded(row.detail, kDetailColumns), fmt::format("{:.4g}", row.calls), 1e3 * row.seconds,
         percent(row.seconds), cell(row.flop_rate() / 1e9), cell(row.byte_rate() / 1e9),
         row.limit_seconds > 0 ? fmt::format("{:.0f} %", 100 * row.of_limit()) : "-");
  }

  // Adds the first rows, and the total of the others.
  template <typename Show>
  void add_first(const std::vector<ProfileRow>& rows, const Show& show) {
    const size_t shown = std::min(rows.size(), options_.rows);
    for (size_t i = 0; i < shown; ++i) show(rows[i]);
    if (shown == rows.size()) return;
    double rest = 0;
    for (size_t i = shown; i < rows.size(); ++i) rest += rows[i].seconds;
    line("  … {} more: {}, {:.1f} %", rows.size() - shown, milliseconds(rest), percent(rest));
  }

  void add_rows(const char* what, const std::vector<ProfileRow>& rows, bool with_shapes) {
    heading(fmt::format("slowest {}, per step:", what));
    columns(with_shapes ? "layer and op" : "op", with_shapes ? "" : "kernel");
    add_first(rows, [&](const ProfileRow& row) {
      if (!with_shapes) return add_row(row);
      ProfileRow numbers = row;
      numbers.detail.clear();
      add_row(numbers);
      const std::string_view shapes = cut_to_width(row.detail, kShapeColumns);
      line("      {}{}", shapes, shapes.size() < row.detail.size() ? "…" : "");
    });
  }

  void add_layers() {
    heading("slowest layers, per step:");
    line("  {} {:>6} {:>10} {:>7} {:>10} {:>10} {:>10} {:>9} {:>9}", padded("layer", kNameColumns),
         "calls", "ms", "share", "forward", "backward", "update", "GFLOP/s", "of limit");
    add_first(report_.profile.layers, [&](const ProfileRow& row) {
      line("  {} {:>6} {:>10.3f} {:>5.1f} % {:>10.3f} {:>10.3f} {:>10.3f} {:>9} {:>9}",
           padded(row.name, kNameColumns), fmt::format("{:.4g}", row.calls), 1e3 * row.seconds,
           percent(row.seconds), 1e3 * row.forward, 1e3 * row.backward, 1e3 * row.update,
           cell(row.flop_rate() / 1e9),
           row.limit_seconds > 0 ? fmt::format("{:.0f} %", 100 * row.of_limit()) : "-");
    });
  }

  void add_gaps() {
    const std::vector<Gap>& gaps = report_.profile.gaps;
    if (gaps.empty()) return;
    heading("longest gaps between kernels:");
    for (size_t i = 0; i < std::min(gaps.size(), options_.rows); ++i) {
      line("  {:<14} {:>12}   observed step {}, at {:.3f} ms of the trace", gaps[i].cause,
           milliseconds(gaps[i].seconds), gaps[i].step, 1e3 * gaps[i].at);
    }
  }

  const ProfileReport& report_;
  const TableOptions& options_;
  double step_;
  std::string text_;
};

}  // namespace

double ProfileReport::utilization() const {
  const double peak = limits.peak_flops();
  return plain_step_seconds > 0 && peak > 0 ? model_flops / (plain_step_seconds * peak) : 0;
}

double ProfileReport::joules_per_sample() const {
  const auto count = static_cast<double>(std::max<size_t>(1, ranks.size()));
  return samples_per_step > 0
             ? watts * count * plain_step_seconds / static_cast<double>(samples_per_step)
             : 0;
}

std::string profile_table(const ProfileReport& report, const TableOptions& options) {
  return Table(report, options).text();
}

}  // namespace dltrain

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "profile/report.h"

namespace dltrain {
namespace {

constexpr double kOtherLoad = 0.3;  // CPUs

std::string ms(double seconds) {
  return fmt::format("{:.3g} ms", 1e3 * seconds);
}

class Judge {
 public:
  explicit Judge(const ProfileReport& report) : r_(report), p_(report.profile) {}

  std::vector<std::string> sentences() {
    out_.push_back(bound());
    judge_machine();
    judge_data();
    judge_overhead();
    judge_ranks();
    judge_losses();
    if (!r_.misalignment.empty()) out_.push_back(r_.misalignment);
    return out_;
  }

 private:
  double share(const char* name) const {
    const auto found = std::ranges::find(p_.shares, name, &StepShare::name);
    return found == p_.shares.end() || p_.step_seconds <= 0 ? 0 : found->seconds / p_.step_seconds;
  }
  double of_step(double seconds) const {
    return p_.step_seconds > 0 ? 100 * seconds / p_.step_seconds : 0;
  }
  // The part of the step between the kernels.
  double overhead() const { return share("host") + share("inputs") + share("results"); }
  // The part of the step that short calls take beyond their work.
  double excess() const { return p_.kernels.short_excess / std::max(p_.step_seconds, 1e-12); }
  bool calls_are_too_small() const {
    const KernelTotals& k = p_.kernels;
    return k.calls > 0 && k.short_calls >= 0.5 * k.calls && overhead() + excess() >= 0.15;
  }

  // "bound by memory: 62 % of the step is in kernels that it limits, at 80 % of the limit; …"
  std::string bound() const {
    const KernelTotals& k = p_.kernels;
    const double kernels = k.arithmetic_seconds + k.memory_seconds;
    const double work = (1 - k.short_excess / std::max(kernels, 1e-12)) / p_.step_seconds;
    const double arithmetic = work * k.arithmetic_seconds, memory = work * k.memory_seconds;
    const std::pair<double, const char*> candidates[] = {{arithmetic, "arithmetic"},
                                                         {memory, "memory"},
                                                         {share("data"), "data"},
                                                         {share("communication"), "communication"},
                                                         {overhead() + excess(), "overhead"}};
    const auto [most, name] = *std::ranges::max_element(candidates);
    const std::string_view what = name;
    if (what != "arithmetic" && what != "memory") {
      return fmt::format("bound by {}: {:.0f} % of the step", what, 100 * most);
    }
    const double ridge = r_.limits.bytes > 0 ? r_.limits.peak_flops() / r_.limits.bytes : 0;
    const double limit = what == "memory" ? k.memory_limit / k.memory_seconds
                                          : k.arithmetic_limit / k.arithmetic_seconds;
    return fmt::format(
        "bound by {}: {:.0f} % of the step is in kernels that it limits, at {:.0f} % of the limit; "
        "all kernels together have {:.3g} FLOP a byte, the ridge point is {:.3g}",
        what, 100 * most, 100 * limit, k.bytes > 0 ? k.flops / k.bytes : 0, ridge);
  }

  void judge_data() {
    const double waiting = share("data");
    if (waiting < 0.05) return;
    const LoaderTotals& loader = p_.loader;
    // Each thread fills at its own pace: as many are needed as fill in the rest of the step.
    const double rest = p_.step_seconds * (1 - waiting);
    const auto needed = static_cast<int>(std::ceil(loader.fill_seconds / std::max(rest, 1e-9)));
    std::string text = fmt::format(
        "{:.0f} % of the step waits for data: its batches take {} of {} loader thread{}",
        100 * waiting, ms(loader.fill_seconds), r_.data_workers, r_.data_workers == 1 ? "" : "s");
    const double computing = loader.computing / loader.fill_seconds;
    if (std::isfinite(computing)) {
      text += fmt::format(" ({:.0f} % computing, {:.0f} % waiting for disk or cores)",
                          100 * computing, 100 * (1 - computing));
    }
    if (std::isfinite(computing) && computing < 0.5) {
      text += "; a faster disk or a packed file (dltrain data prepare), or more data.workers";
    } else if (needed > r_.cores) {
      text += fmt::format(
          "; {} threads would keep up, but there are {} cores: decode less (dltrain data prepare "
          "--encoding raw, smaller images)",
          needed, r_.cores);
    } else if (needed > r_.data_workers) {
      text += fmt::format("; data.workers {} → {}", r_.data_workers, needed);
    } else if (r_.threads >= r_.cores) {
      text += fmt::format(
          "; they are fast enough but share the {} cores with the kernels: leave "
          "them one (OMP_NUM_THREADS)",
          r_.cores);
    } else {
      text += r_.other_load >= kOtherLoad
                  ? "; they are fast enough, but other processes use the cores"
                  : "; they are fast enough, but so short a step waits until "
                    "a thread wakes up";
    }
    out_.push_back(text);
  }

  void judge_overhead() {
    const KernelTotals& k = p_.kernels;
    if (calls_are_too_small()) {
      out_.push_back(fmt::format(
          "{:.0f} of {:.0f} kernel calls take less than 5 µs, and {:.0f} % of the step is between "
          "the kernels or in the fixed costs of these calls: the work is too small for its calls; "
          "a larger training.micro_batch_size or wider layers",
          k.short_calls, k.calls, 100 * (overhead() + excess())));
    } else if (overhead() >= 0.2) {
      out_.push_back(fmt::format("{:.0f} % of the step is between the kernels{}", 100 * overhead(),
                                 longest_gap("host")));
    }
    if (share("results") >= 0.1) {
      out_.push_back(fmt::format(
          "{:.0f} % of the step waits for its sums on the host{}: a larger logging.logging_steps",
          100 * share("results"), longest_gap("results")));
    }
  }

  std::string longest_gap(std::string_view cause) const {
    const auto gap = std::ranges::find(p_.gaps, cause, &Gap::cause);
    if (gap == p_.gaps.end()) return "";
    return fmt::format(" (the longest gap, {}, in observed step {} at {:.6g} ms of the trace)",
                       ms(gap->seconds), gap->step, 1e3 * gap->at);
  }

  void judge_ranks() {
    if (share("communication") >= 0.1) {
      out_.push_back(
          fmt::format("{:.0f} % of the step waits for other ranks{}: larger micro-batches, or a "
                      "layout with fewer messages (`dltrain plan --search`)",
                      100 * share("communication"), longest_gap("communication")));
    }
    // A rank that computes longer lets the others wait.
    std::vector<double> kernels;
    for (const RankShares& rank : r_.ranks) {
      kernels.push_back(rank.seconds[0] + rank.seconds[1] + rank.seconds[2]);
    }
    if (kernels.size() < 2) return;
    const auto [least, most] = std::ranges::minmax_element(kernels);
    if (*most < 1.2 * *least || *most < 0.1 * p_.step_seconds) return;
    out_.push_back(fmt::format("rank {} computes {} a step, rank {} {}: the others wait for it",
                               most - kernels.begin(), ms(*most), least - kernels.begin(),
                               ms(*least)));
  }

  // The op with the most time beyond what the limit needs.
  void judge_losses() {
    const ProfileRow* worst = nullptr;
    const auto lost = [](const ProfileRow& row) { return row.seconds - row.limit_seconds; };
    for (const ProfileRow& row : p_.ops) {
      if (row.limit_seconds <= 0) continue;
      if (worst == nullptr || lost(row) > lost(*worst)) worst = &row;
    }
    if (worst == nullptr || of_step(lost(*worst)) < 10 || worst->of_limit() > 0.5) return;
    if (calls_are_too_small() && of_step(lost(*worst)) < 100 * excess()) return;  // said before
    out_.push_back(fmt::format(
        "most is lost in {} ({}): {} of its {} a step are beyond what the limit needs ({:.0f} % of "
        "it)",
        worst->name, worst->detail, ms(lost(*worst)), ms(worst->seconds), 100 * worst->of_limit()));
  }

  void judge_machine() {
    if (!r_.throttled.empty()) {
      out_.push_back(fmt::format("the GPU runs slower than it could ({}){}", r_.throttled,
                                 r_.watts > 0 ? fmt::format(": {:.0f} W", r_.watts) : ""));
    }
    if (r_.other_load >= kOtherLoad) {
      out_.push_back(
          fmt::format("other processes use {:.1f} of the {} CPU{}: times are longer and vary",
                      r_.other_load, r_.cores, r_.cores == 1 ? "" : "s"));
    }
    if (r_.threads > r_.cores) {
      out_.push_back(fmt::format("{} threads share {} cores: OMP_NUM_THREADS={}", r_.threads,
                                 r_.cores, r_.cores));
    }
  }

  const ProfileReport& r_;
  const Profile& p_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> verdicts(const ProfileReport& report) {
  return Judge(report).sentences();
}

}  // namespace dltrain

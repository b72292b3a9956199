#include <unistd.h>

#include "checks/checks.h"
#include "dltrain/commands.h"
#include "telemetry/console.h"
#include "telemetry/log.h"

namespace dltrain {
namespace {

// Indexed by CheckOutcome.
constexpr const char* kWords[] = {"PASS", "FAIL", "SKIP", "ERROR", "NOTE"};
constexpr int kColours[] = {32, 31, 33, 31, 36};

struct CheckCommand {
  ConfigOptions config;
  double seconds = 60;
};

void print_result(const CheckResult& result) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && console().color();
  const auto outcome = static_cast<size_t>(result.outcome);
  const std::string word =
      colour ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[outcome], kWords[outcome])
             : kWords[outcome];
  fmt::print("{}  {}: {}\n", word, result.name, result.detail);
  std::fflush(stdout);
}

// "9 of 11 checks passed; failed: target leak; skipped: gradient check"
std::string summary_of(const std::vector<CheckResult>& results) {
  size_t passed = 0, checks = 0;
  std::string others[std::size(kWords)];
  for (const CheckResult& result : results) {
    std::string& names = others[static_cast<size_t>(result.outcome)];
    names += (names.empty() ? "" : ", ") + result.name;
    passed += result.outcome == CheckOutcome::pass ? 1 : 0;
    checks += result.outcome == CheckOutcome::note ? 0 : 1;
  }
  std::string out = fmt::format("{} of {} checks passed", passed, checks);
  const auto print_count = [&](CheckOutcome outcome, const char* what) {
    const std::string& names = others[static_cast<size_t>(outcome)];
    if (!names.empty()) out += fmt::format("; {}: {}", what, names);
  };
  print_count(CheckOutcome::fail, "failed");
  print_count(CheckOutcome::error, "could not run");
  print_count(CheckOutcome::skip, "skipped");
  return out;
}

// The checks run on one rank. Plans the layout of several ranks, so that its mistakes are found.
void plan_layout(Experiment experiment) {
  const auto world = static_cast<int>(experiment.parallelism.least_ranks());
  if (world == 1) return;
  open_planned(experiment, world, 0, {}, {});
  print_result({.name = "layout",
                .outcome = CheckOutcome::note,
                .detail = fmt::format("planned for {} ranks; the checks run on one", world)});
}

ExitCode run_check_command(const CheckCommand& options) {
  plan_layout(options.config.load());
  CheckOptions checks{
      .engines = engines(),
      .load = [&](const std::vector<std::string>& extra) { return options.config.load(extra); },
      .on_result =
          [](const CheckResult& result) {
            print_result(result);
            // The checks open the data again; what is known of it has been said.
            set_up_log({.level = LogLevel::warning}, console());
          }};
  checks.allow(options.seconds);
  const auto results = run_checks(checks);
  fmt::print("{}\n", summary_of(results));
  ExitCode code = ExitCode::ok;
  for (const CheckResult& result : results) {
    if (result.failed()) return ExitCode::check_failed;
    if (code == ExitCode::ok) code = result.code;
  }
  return code;
}

}  // namespace

CommandBody add_check(CLI::App& command) {
  auto options = std::make_shared<CheckCommand>();
  options->config.add_to(command, ConfigOptions::Use::training);
  add_number(command, "--time", options->seconds, 1.0, 1e6,
             "Seconds that one check may take (default 60)");
  return [options] { return run_check_command(*options); };
}

}  // namespace dltrain

// dltrain report: runs as one HTML page that opens without a network.
#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/memory.h"
#include "base/owned_files.h"
#include "config/suggest.h"
#include "dltrain/commands.h"
#include "experiment/metric_watch.h"
#include "report/page.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> folders;
  std::string output;
  ReportOptions page;
};

constexpr const char* kPageFile = "report.html";

// The folder of the sweep that a run belongs to, or an empty path.
fs::path sweep_of(const RunRecord& run) {
  const fs::path trial = run.folder.parent_path(), sweep = trial.parent_path();
  return run.folder.filename() == "run" && is_sweep(sweep) ? sweep : fs::path();
}

// Orders the runs of each sweep by its metric, the best first and those without a result last.
void sort_trials(std::vector<RunRecord>& runs) {
  for (auto begin = runs.begin(); begin != runs.end();) {
    const fs::path sweep = sweep_of(*begin);
    const auto end = std::find_if(begin, runs.end(),
                                  [&](const RunRecord& run) { return sweep_of(run) != sweep; });
    if (!sweep.empty()) {
      auto settings = settings_of(read_run(sweep));
      const bool evaluated = std::any_of(
          begin, end, [](const RunRecord& run) { return run.figures.contains("eval_loss"); });
      std::string metric = settings["sweep.metric"], mode = settings["sweep.mode"];
      if (metric == "null" || metric.empty()) metric = evaluated ? "eval_loss" : "loss";
      const bool smaller =
          mode == "min" || (mode != "max" && default_mode(metric) == MetricMode::min);
      std::ranges::stable_sort(begin, end, {}, [&](const RunRecord& run) {
        const auto found = run.figures.find(metric);
        const bool ended = run.status == "finished" || run.status == "stopped";
        if (!ended || found == run.figures.end()) return double{INFINITY};
        return smaller ? found->second : -found->second;
      });
    }
    begin = end;
  }
}

ExitCode write_report(const ReportArguments& arguments) {
  std::vector<RunRecord> runs = read_runs(arguments.folders, /*required=*/true);
  sort_trials(runs);
  ReportOptions options = arguments.page;
  options.engines = engines();
  if (options.title.empty() && runs.size() > 1) {
    std::vector<std::string> names;
    for (const std::string& folder : arguments.folders) {
      names.push_back(named_folder(folder).filename().string());
    }
    options.title = some_names(names);
  }
  // The page of one run belongs to its folder, that of several to the current one.
  const bool of_run = arguments.output.empty() && runs.size() == 1 && has_marker(runs[0].folder);
  const std::string output = of_run                     ? (runs[0].folder / kPageFile).string()
                             : arguments.output.empty() ? kPageFile
                                                        : arguments.output;
  std::error_code ignored;
  const bool again = fs::exists(output, ignored);
  if (again && !is_report_page(output)) {
    fail(ExitCode::usage, "{} exists and is not a report; name another page with -o", output);
  }
  const std::string page = report_page(runs, options);
  if (of_run) claim_files(runs[0].folder, {kPageFile});
  write_file_atomically(output, page);
  fmt::print("{}: {} run{}, {}{}\n", output, runs.size(), runs.size() == 1 ? "" : "s",
             bytes_text(page.size()), again ? ", in place of an earlier report" : "");
  return ExitCode::ok;
}

}  // namespace

CommandBody add_report(CLI::App& command) {
  auto arguments = std::make_shared<ReportArguments>();
  command.add_option("RUN", arguments->folders, "Run folders, or folders of runs")->required();
  add_output(command, "-o,--output", arguments->output,
             "The page (default: report.html in the folder of the run; of several runs in the "
             "current folder)");
  add_text(command, "--title", arguments->page.title, "The title (default: the name)");
  add_number(command, "--points", arguments->page.points, size_t{0}, size_t{100'000'000},
             "The most points of a curve; 0: all (default 2000)");
  return [arguments] { return write_report(*arguments); };
}

}  // namespace dltrain

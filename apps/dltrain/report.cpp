// dltrain report: runs as one HTML page that opens without a network.
#include "base/file.h"
#include "base/memory.h"
#include "base/owned_files.h"
#include "dltrain/commands.h"
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

ExitCode write_report(const ReportArguments& arguments) {
  std::vector<RunRecord> runs = read_runs(arguments.folders, /*required=*/true);
  ReportOptions options = arguments.page;
  options.engines = engines();
  if (options.title.empty() && runs.size() > 1) {
    const fs::path folder = fs::absolute(arguments.folders[0]).lexically_normal();
    options.title = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  // The page of one run belongs to its folder, that of several to the current one.
  const bool of_run = arguments.output.empty() && runs.size() == 1 && has_marker(runs[0].folder);
  const std::string output = of_run                     ? (runs[0].folder / kPageFile).string()
                             : arguments.output.empty() ? kPageFile
                                                        : arguments.output;
  std::error_code ignored;
  if (fs::exists(output, ignored) && !is_report_page(output)) {
    fail(ExitCode::usage, "{} exists and is not a report; name another page with -o", output);
  }
  const std::string page = report_page(runs, options);
  if (of_run) claim_files(runs[0].folder, {kPageFile});
  write_file_atomically(output, page);
  fmt::print("{}: {} run{}, {}\n", output, runs.size(), runs.size() == 1 ? "" : "s",
             bytes_text(page.size()));
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

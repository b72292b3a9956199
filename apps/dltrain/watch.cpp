// dltrain watch: the report of a run as a page on this machine that follows the training.
#include <chrono>
#include <cstdio>

#include "dltrain/commands.h"
#include "report/page.h"
#include "report/page_server.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

struct WatchArguments {
  std::string folder;
  int port = 7007;
  ReportOptions page;
};

// Content that is made again after a second at the earliest, and at most a tenth of the time.
PageServer::Content made_at_times(PageServer::Content make) {
  return [make = std::move(make), text = std::string(), next = Clock::time_point()]() mutable {
    const Clock::time_point begin = Clock::now();
    if (begin < next) return text;
    text = make();
    const Clock::time_point end = Clock::now();
    next = end + std::max<Clock::duration>(std::chrono::seconds(1), 9 * (end - begin));
    return text;
  };
}

ExitCode watch(const WatchArguments& arguments) {
  const fs::path folder = arguments.folder;
  if (!fs::is_directory(folder)) fail(ExitCode::storage, "{} is not a folder", folder.string());
  refuse_sweep(folder);
  if (find_runs(folder) != std::vector{folder}) {
    fail(ExitCode::storage, "{} is not the folder of a run", folder.string());
  }
  ReportOptions options = arguments.page;
  options.engines = engines();
  options.refresh = 2;
  const std::string page = report_page({read_run(folder)}, options);
  PageServer server(
      arguments.port, [&] { return page; },
      made_at_times([&] { return report_progress(read_run(folder), options); }));
  fmt::print("http://127.0.0.1:{}/ shows {}; Ctrl-C ends this\n", server.port(), folder.string());
  std::fflush(stdout);
  while (true) server.serve(1000);
}

}  // namespace

CommandBody add_watch(CLI::App& command) {
  auto arguments = std::make_shared<WatchArguments>();
  command.add_option("RUN", arguments->folder, "The run folder")->required();
  add_number(command, "--port", arguments->port, 0, 65535,
             "The port on 127.0.0.1; 0: any free one (default 7007)");
  add_number(command, "--points", arguments->page.points, size_t{0}, size_t{100'000'000},
             "The most points of a curve; 0: all (default 2000)");
  return [arguments] { return watch(*arguments); };
}

}  // namespace dltrain

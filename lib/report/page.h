// The report of runs as one HTML page without references to other files, for `dltrain report`.
#pragma once

#include <string>
#include <vector>

#include "run/engines.h"
#include "run/run_record.h"

namespace dltrain {

struct ReportOptions {
  std::string title = {};  // default: the name of the run, or of the study
  size_t points = 2000;    // the most that are kept of each curve (thinned()); 0: all
  // Runs are planned on these for the section on model and memory. With more than kPlannedRuns runs
  // that section is left out.
  Engines engines = {};
  int refresh = 0;  // seconds after which the page asks for data.json (page_server.h); 0: never
};
inline constexpr size_t kPlannedRuns = 4;

// Parts of runs that cannot be read are left out. Texts of the runs cannot act as markup or
// scripts.
std::string report_page(const std::vector<RunRecord>& runs, const ReportOptions& options);

// Returns as JSON the parts of a run's page that change while the run goes on. A page with
// ReportOptions::refresh asks for it again and again.
std::string report_progress(const RunRecord& run, const ReportOptions& options);

// Returns true if the file begins like a page of report_page().
bool is_report_page(const std::filesystem::path& file);

// The sources of the page, written into the program by cmake/report_page.cmake.
struct PageSources {
  std::string_view html, style, script;
  std::string_view charts;  // Chart.js
};
const PageSources& page_sources();

}  // namespace dltrain

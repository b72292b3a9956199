// The searches of `dltrain sweep` on functions that bench/search.py evaluates.
//
//   bench_search SEARCH TRIALS SEED < CONVERSATION
//
// The first line of stdin has the parameters: "log LOW HIGH", "range LOW HIGH" or "values N" each,
// separated by ';'. For each trial it prints its values on one line and reads its score.
#include "sweep/search.h"

#include <cstdio>
#include <iostream>
#include <sstream>

using namespace dltrain;

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  SweepConfig sweep;
  const std::string search = argv[1];
  sweep.search = search == "tpe"      ? SearchKind::tpe
                 : search == "random" ? SearchKind::random
                                      : SearchKind::quasi_random;
  sweep.trials = std::stoll(argv[2]);
  sweep.seed = std::stoll(argv[3]);
  std::string line;
  std::getline(std::cin, line);
  std::istringstream parts(line);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    std::string kind;
    double low = 0, high = 0;
    words >> kind >> low >> high;
    SweepParameter& parameter = sweep.parameters.emplace_back();
    parameter.key = fmt::format("x{}", sweep.parameters.size());
    if (kind == "log") parameter.log = {{low, high}};
    if (kind == "range") parameter.range = {{low, high}};
    for (int i = 0; kind == "values" && i < low; ++i) {
      parameter.values.push_back(std::to_string(i));
    }
  }
  std::vector<Observation> seen;
  for (int64_t trial = 0; trial < *sweep.trials; ++trial) {
    const auto needed = static_cast<size_t>(needed_trials(sweep, trial));
    std::vector<std::string> values = values_of_trial(sweep, trial, std::span(seen).first(needed));
    for (const std::string& value : values) std::printf("%s ", value.c_str());
    std::printf("\n");
    std::fflush(stdout);
    double score = 0;
    if (!(std::cin >> score)) return 1;
    seen.push_back({.values = std::move(values), .score = score});
  }
  return 0;
}

// Being a rank as `dltrain train` is one (apps/dltrain/ranks.cpp), for tests.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/ranks.h"
#include "runtime/run_ranks.h"

namespace dltrain {

// Meets the others, is watched, does `body` and parts from them. `tell` is given the reason of the
// end, empty where there is none, before the process ends by it.
ExitCode as_watched_rank(const test::RankContext& context, std::chrono::milliseconds timeout,
                         const std::function<void(const std::string&)>& tell,
                         const std::function<ExitCode(const RunRanks&)>& body);

}  // namespace dltrain

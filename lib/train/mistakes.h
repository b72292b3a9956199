// Mistakes that one rank finds and all ranks end for: one of them tells it, the others end without
// a word. All ranks must call the same functions in the same order.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "device/collectives.h"

namespace dltrain {

// What the ranks throw that do not tell the mistake. Its own code is `rank`, as that of every rank
// that ends because of another one.
class MistakeElsewhere : public Error {
 public:
  MistakeElsewhere(int rank, ExitCode mistake)
      : Error(ExitCode::rank, fmt::format("rank {} has failed", rank)),
        rank_(rank),
        mistake_(mistake) {}

  int rank() const { return rank_; }             // that tells it
  ExitCode mistake() const { return mistake_; }  // what that one ends with

 private:
  int rank_;
  ExitCode mistake_;
};

// Runs a part of the work on every rank, and waits for the others. The first rank whose part throws
// throws that, the others throw MistakeElsewhere. A rank that cannot ask the others, since one was
// lost, throws its own mistake before Error(rank). `group`: over host memory; nullptr: alone.
void together(Collectives* group, const std::function<void()>& part);

// What the first rank that has found something says, and which one that is: "… (on rank 2)"; the
// same on every rank, at most kFindingBytes of it. Empty where nobody has. Throws Error(rank).
inline constexpr size_t kFindingBytes = 1024;
std::string first_finding(Collectives* group, const std::string& own);

}  // namespace dltrain

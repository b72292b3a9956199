// Errors that one rank finds and that end all ranks: one rank reports the error, the others end
// without a message. All ranks must call the same functions in the same order.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/error.h"
#include "device/collectives.h"

namespace dltrain {

// Thrown by the ranks that do not report the error. Its own code is `rank`, as for every rank that
// ends because of another one.
class RemoteError : public Error {
 public:
  RemoteError(int rank, ExitCode remote_code)
      : Error(ExitCode::rank, fmt::format("rank {} has failed", rank)),
        rank_(rank),
        remote_code_(remote_code) {}

  int rank() const { return rank_; }                     // the rank that reports the error
  ExitCode remote_code() const { return remote_code_; }  // the exit code of that rank

 private:
  int rank_;
  ExitCode remote_code_;
};

// Returns the exit code of a process that ends with this exception, which may be one of the
// standard library (std::bad_alloc, std::filesystem::filesystem_error).
ExitCode exit_code_of(const std::exception& error);

// Runs a part of the work on every rank and waits for the others. The first rank whose part throws
// rethrows that exception, the others throw RemoteError. If a rank was lost, a rank throws its
// own exception if it has one, else Error(rank). `group`: over host memory; nullptr: one rank.
void run_on_all_ranks(Collectives* group, const std::function<void()>& part);

// Returns, on every rank, the text of the first rank whose text is not empty, followed by its
// number: "… (on rank 2)". At most kFindingBytes are sent. Returns an empty text if all are empty.
// Throws Error(rank).
inline constexpr size_t kFindingBytes = 1024;
std::string first_finding(Collectives* group, const std::string& own);

}  // namespace dltrain

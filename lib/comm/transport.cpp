#include "comm/transport.h"

namespace dltrain {

OtherOperation::OtherOperation(int peer)
    : Error(ExitCode::rank, fmt::format("rank {} has issued another operation", peer)) {}

void fail_lost(int peer, std::string_view reason) {
  fail(ExitCode::rank, "lost rank {} ({})", peer, reason);
}

void fail_silent(int peer, std::chrono::milliseconds timeout) {
  fail(ExitCode::rank,
       "rank {} did not answer within {} ms: it hangs, is slower than the timeout allows, or has "
       "issued another operation",
       peer, timeout.count());
}

}  // namespace dltrain

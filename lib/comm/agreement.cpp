#include "comm/agreement.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"
#include "base/error.h"

namespace dltrain {
namespace {

constexpr const char* kAborted = "choice/aborted";  // the reason
// Interval between checks whether rank 0 has given up; a choice is received at once.
constexpr std::chrono::milliseconds kPollInterval{250};

}  // namespace

std::string RankAgreement::choose(const std::string& key,
                                  const std::function<std::string()>& make) {
  Hasher hasher;  // keys of the store are short
  hasher.update(std::as_bytes(std::span(key)));
  const std::string name = "choice/" + hasher.hex();
  if (rank_ != 0) return wait_for(name);
  try {
    return store_.put_new(name, make());
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
}

void RankAgreement::abort(const std::string& reason) {
  if (rank_ != 0) return;
  try {
    store_.put_new(kAborted, reason);
  } catch (const Error&) {  // the store is gone, so no rank waits any more
  }
}

std::string RankAgreement::wait_for(const std::string& name) {
  const auto deadline = Clock::now() + timeout_;
  while (!over_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (auto choice = store_.find(name, std::min(left, kPollInterval))) return *choice;
    if (const auto why = store_.try_get(kAborted)) {
      over_ = "rank 0 has given up: " + *why;
    } else if (Clock::now() >= deadline) {
      over_ = fmt::format("rank 0 made no choice within {:.1f} s",
                          std::chrono::duration<double>(timeout_).count());
    }
  }
  throw Error(ExitCode::rank, *over_);
}

}  // namespace dltrain

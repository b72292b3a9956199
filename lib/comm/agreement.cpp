#include "comm/agreement.h"

#include <array>
#include <span>

#include "base/checksum.h"
#include "base/error.h"

namespace dltrain {
namespace {

constexpr const char* kAborted = "choice/aborted";  // the reason

}  // namespace

std::string RankAgreement::choose(const std::string& key,
                                  const std::function<std::string()>& make) {
  Hasher hasher;  // keys of the store are short
  hasher.update(std::as_bytes(std::span(key)));
  const std::string name = "choice/" + hasher.hex();
  if (rank_ == 0) {
    try {
      return store_.put_new(name, make());
    } catch (const std::exception& error) {
      abort(error.what());
      throw;
    }
  }
  if (!over_) {
    const std::array<StoreRequest, 2> awaited{StoreRequest{StoreOperation::get, name},
                                              StoreRequest{StoreOperation::get, kAborted}};
    const StoreClient::Values values = store_.wait_for(awaited, timeout_);
    if (values[0]) return *values[0];
    over_ = values[1] ? "rank 0 has given up: " + *values[1]
                      : fmt::format("rank 0 made no choice within {:.1f} s",
                                    std::chrono::duration<double>(timeout_).count());
  }
  throw Error(ExitCode::rank, *over_);
}

void RankAgreement::abort(const std::string& reason) {
  if (rank_ != 0) return;
  try {
    store_.put_new(kAborted, reason);
  } catch (const Error&) {  // the store is gone, so no rank waits any more
  }
}

}  // namespace dltrain

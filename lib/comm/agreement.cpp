#include "comm/agreement.h"

#include <array>
#include <span>

#include "base/checksum.h"
#include "base/error.h"

namespace dltrain {
namespace {

constexpr const char* kAborted = "choice/aborted";  // the reason

// Keys of the store are short.
std::string name_of(const std::string& key) {
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(key)));
  return "choice/" + hasher.hex();
}

}  // namespace

std::string RankAgreement::choose(const std::string& key,
                                  const std::function<std::string()>& make) {
  return choice_of(0, name_of(key), make);
}

std::string RankAgreement::choose_as_first(const std::string& key,
                                           const std::function<std::string()>& make) {
  const std::string name = name_of(key);
  const std::string first = store_.put_new(name + "/rank", std::to_string(rank_));
  return choice_of(std::stoi(first), name, make);
}

std::string RankAgreement::choice_of(int chooser, const std::string& name,
                                     const std::function<std::string()>& make) {
  if (rank_ == chooser) {
    try {
      return store_.put_new(name, make());
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
  }
  if (!over_) {
    const std::array<StoreRequest, 2> awaited{StoreRequest{StoreOperation::get, name},
                                              StoreRequest{StoreOperation::get, kAborted}};
    const StoreClient::Values values = store_.wait_for(awaited, timeout_);
    if (values[0]) return *values[0];
    over_ = values[1] ? *values[1]
                      : fmt::format("rank {} made no choice within {:.1f} s", chooser,
                                    std::chrono::duration<double>(timeout_).count());
  }
  throw Error(ExitCode::rank, *over_);
}

void RankAgreement::abort(const std::string& reason) {
  if (rank_ == 0) give_up(reason);
}

void RankAgreement::give_up(const std::string& reason) {
  try {
    store_.put_new(kAborted, fmt::format("rank {} has given up: {}", rank_, reason));
  } catch (const Error&) {  // the store is gone, so no rank waits any more
  }
}

}  // namespace dltrain

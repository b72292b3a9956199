#include "runtime/remote_error.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <vector>

#include "runtime/host_reduce.h"

namespace dltrain {
namespace {

constexpr int32_t kCodes = 256;  // more than there are exit codes

int32_t greatest(Collectives& group, int32_t own) {
  static const auto subject = std::make_shared<const std::string>("whether a rank has failed");
  reduce_on_host(&group, std::span(&own, 1), ReduceOp::max, subject);
  return own;
}

}  // namespace

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->code();
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return ExitCode::storage;
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return memory ? ExitCode::memory : ExitCode::internal;
}

void run_on_all_ranks(Collectives* group, const std::function<void()>& part) {
  if (group == nullptr) return part();
  std::exception_ptr own_error;
  int32_t code = 0;
  try {
    part();
  } catch (const std::exception& error) {
    own_error = std::current_exception();
    code = static_cast<int32_t>(exit_code_of(error));
  }
  // The greatest is the first rank's.
  const int32_t own = own_error ? (group->size() - group->rank()) * kCodes + code : 0;
  int32_t first = 0;
  try {
    first = greatest(*group, own);
  } catch (const Error&) {
    if (own_error) std::rethrow_exception(own_error);
    throw;
  }
  if (first != own) {
    throw RemoteError(group->size() - first / kCodes, static_cast<ExitCode>(first % kCodes));
  }
  if (own_error) std::rethrow_exception(own_error);
}

std::string first_finding(Collectives* group, const std::string& own) {
  if (group == nullptr) return own;
  const int32_t first = greatest(*group, own.empty() ? 0 : group->size() - group->rank());
  if (first == 0) return "";
  const int finder = group->size() - first;
  std::vector<char> text(kFindingBytes);
  if (finder == group->rank())
    std::memcpy(text.data(), own.data(), std::min(own.size(), text.size()));
  HostStream host;
  group->wait(group->broadcast(text.data(), text.size(), DType::u8, finder, host), host);
  return fmt::format("{} (on rank {})", std::string(text.data(), strnlen(text.data(), text.size())),
                     finder);
}

}  // namespace dltrain

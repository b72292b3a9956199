#include "cuda/vendor/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace dltrain {
namespace {

constexpr int kMinVersion =
    21800;  // 2.18, of CUDA 12: the oldest with ncclCommSplit and a reliable abort

struct LoadedNccl {
  NcclLibrary library{};
  std::string problem;
};

bool load(NcclLibrary& to, void* library) {
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return get(to.version, "ncclGetVersion") && get(to.unique_id, "ncclGetUniqueId") &&
         get(to.init_rank, "ncclCommInitRank") && get(to.split, "ncclCommSplit") &&
         get(to.destroy, "ncclCommDestroy") && get(to.abort, "ncclCommAbort") &&
         get(to.async_error, "ncclCommGetAsyncError") &&
         get(to.error_string, "ncclGetErrorString") && get(to.last_error, "ncclGetLastError") &&
         get(to.all_reduce, "ncclAllReduce") && get(to.reduce_scatter, "ncclReduceScatter") &&
         get(to.all_gather, "ncclAllGather") && get(to.broadcast, "ncclBroadcast") &&
         get(to.send, "ncclSend") && get(to.receive, "ncclRecv");
}

LoadedNccl open() {
  LoadedNccl out;
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) {
    const char* text = dlerror();
    out.problem = fmt::format("libnccl.so.2 cannot be loaded: {}", text ? text : "unknown error");
    return out;
  }
  int version = 0;
  if (!load(out.library, library) || out.library.version(&version) != ncclSuccess) {
    out.problem = "libnccl.so.2 is not a usable NCCL";
    return out;
  }
  out.library.name =
      fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  if (version < kMinVersion) out.problem = out.library.name + " is too old; 2.18 is needed";
  return out;
}

const LoadedNccl& opened() {
  static const LoadedNccl instance = open();
  return instance;
}

}  // namespace

const NcclLibrary* NcclLibrary::find() {
  return opened().problem.empty() ? &opened().library : nullptr;
}

const std::string& NcclLibrary::problem() {
  return opened().problem;
}

std::string NcclLibrary::text_of(ncclResult_t result, ncclComm_t comm) const {
  std::string text = fmt::format("{}: {}", name, error_string(result));
  const char* more = last_error(comm);
  if (more != nullptr && more[0] != '\0') text += fmt::format(" ({})", more);
  return text;
}

}  // namespace dltrain

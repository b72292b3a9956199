#include "cuda/vendor/nccl.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <nccl.h>

#include "base/error.h"
#include "base/signals.h"
#include "cuda/vendor/check.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/stream_progress.h"

namespace dltrain {
namespace {

// 2.18, of CUDA 12: the oldest with ncclCommSplit and a reliable abort.
constexpr int kMinVersion = 21800;

struct NcclLibrary {
  OpenedLibrary library{dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)};
  DLTRAIN_LIBRARY_FUNCTION(version, ncclGetVersion);
  DLTRAIN_LIBRARY_FUNCTION(unique_id, ncclGetUniqueId);
  DLTRAIN_LIBRARY_FUNCTION(init_rank, ncclCommInitRank);
  DLTRAIN_LIBRARY_FUNCTION(split, ncclCommSplit);
  DLTRAIN_LIBRARY_FUNCTION(destroy, ncclCommDestroy);
  DLTRAIN_LIBRARY_FUNCTION(abort, ncclCommAbort);
  DLTRAIN_LIBRARY_FUNCTION(count, ncclCommCount);
  DLTRAIN_LIBRARY_FUNCTION(async_error, ncclCommGetAsyncError);
  DLTRAIN_LIBRARY_FUNCTION(error_string, ncclGetErrorString);
  DLTRAIN_LIBRARY_FUNCTION(last_error, ncclGetLastError);
  DLTRAIN_LIBRARY_FUNCTION(all_reduce, ncclAllReduce);
  DLTRAIN_LIBRARY_FUNCTION(reduce_scatter, ncclReduceScatter);
  DLTRAIN_LIBRARY_FUNCTION(all_gather, ncclAllGather);
  DLTRAIN_LIBRARY_FUNCTION(broadcast, ncclBroadcast);
  DLTRAIN_LIBRARY_FUNCTION(send, ncclSend);
  DLTRAIN_LIBRARY_FUNCTION(receive, ncclRecv);
  DLTRAIN_LIBRARY_FUNCTION(group_start, ncclGroupStart);
  DLTRAIN_LIBRARY_FUNCTION(group_end, ncclGroupEnd);
  std::string name;  // "NCCL 2.28.9"

  std::string problem;  // the reason, in one line, if the library is missing or too old

  // Returns "unhandled system error: …", with NCCL's message on the communicator (nullptr: none).
  std::string text_of(ncclResult_t result, ncclComm_t comm) const {
    std::string text = fmt::format("{}: {}", name, error_string(result));
    const char* more = last_error(comm);
    if (more != nullptr && more[0] != '\0') text += fmt::format(" ({})", more);
    return text;
  }
};

NcclLibrary open_nccl() {
  NcclLibrary out;
  if (out.library.handle == nullptr) {
    const char* text = dlerror();
    out.problem = fmt::format("libnccl.so.2 cannot be loaded: {}", text ? text : "unknown error");
    return out;
  }
  int version = 0;
  if (!out.library.complete || out.version(&version) != ncclSuccess) {
    out.problem = "libnccl.so.2 is not a usable NCCL";
    return out;
  }
  out.name = fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  if (version < kMinVersion) out.problem = out.name + " is too old; 2.18 is needed";
  return out;
}

// Opens the library at the first use.
const NcclLibrary& opened() {
  static const NcclLibrary instance = open_nccl();
  return instance;
}

// The types of reductions; other operations move bytes.
ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    default:
      fail(ExitCode::internal, "internal error: NCCL cannot reduce {}", dtype_name(dtype));
  }
}

// Runs the call on a thread with signals blocked, which NCCL's threads inherit. The call waits for
// all ranks, while this thread handles signals.
ncclResult_t call_without_signals(CudaDevice& device, const std::function<ncclResult_t()>& call) {
  std::packaged_task<ncclResult_t()> task([&] {
    device.make_current();
    return call();
  });
  std::future<ncclResult_t> result = task.get_future();
  std::thread thread;
  {
    const BlockSignals block;
    thread = std::thread(std::move(task));
  }
  thread.join();
  return result.get();
}

class NcclBackend final : public CollectiveBackend {
 public:
  // Owns the communicator.
  NcclBackend(const NcclLibrary& nccl, CudaDevice& device, ncclComm_t comm)
      : nccl_(nccl), device_(device), comm_(comm) {
    const BlockSignals block;
    poll_ = std::thread([this] { poll(); });
  }

  ~NcclBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    poll_.join();
    if (comm_ != nullptr) (void)nccl_.destroy(comm_);
  }

  void queue(const CollectiveCall& call, Stream& stream) override {
    device_.make_current();
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    last_ = call;
    marks_.begin(native_stream(stream));
    const ncclResult_t result = start(call, native_stream(stream));
    marks_.end(native_stream(stream));
    if (result != ncclSuccess && result != ncclInProgress) fail_with(result);
  }

  std::optional<CollectiveFailure> failure() override {
    if (!failed_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  DeviceProgress progress() override {
    device_.make_current();
    return marks_.progress();
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    if (!failed_) fail_now("this rank has abandoned the group");
  }

  std::unique_ptr<CollectiveBackend> split(std::span<const int> ranks) override {
    ncclComm_t part = nullptr;
    // Ranks keep their order; the number of the first rank identifies a part.
    const ncclResult_t result = call_without_signals(
        device_, [&] { return nccl_.split(comm_, ranks.front(), 0, &part, nullptr); });
    if (result != ncclSuccess) {
      fail(ExitCode::device, "no group of {} GPUs can be made: {}; NCCL_DEBUG=INFO says more",
           ranks.size(), nccl_.text_of(result, comm_));
    }
    return std::make_unique<NcclBackend>(nccl_, device_, part);
  }

 private:
  ncclResult_t start(const CollectiveCall& c, cudaStream_t stream) {
    const ncclRedOp_t op = c.op == ReduceOp::max ? ncclMax : ncclSum;
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return nccl_.all_reduce(c.output, c.output, c.count, type_of(c.dtype), op, comm_, stream);
      case CollectiveKind::reduce_scatter:
        return nccl_.reduce_scatter(c.input, c.output, c.count, type_of(c.dtype), op, comm_,
                                    stream);
      case CollectiveKind::all_gather:
        return nccl_.all_gather(c.input, c.output, c.bytes(), ncclUint8, comm_, stream);
      case CollectiveKind::all_to_all:
        return exchange(c, stream);
      case CollectiveKind::broadcast:
        return nccl_.broadcast(c.output, c.output, c.bytes(), ncclUint8, c.root, comm_, stream);
      case CollectiveKind::send:
        return nccl_.send(c.input, c.bytes(), ncclUint8, c.peer, comm_, stream);
      case CollectiveKind::receive:
        return nccl_.receive(c.output, c.bytes(), ncclUint8, c.peer, comm_, stream);
      case CollectiveKind::barrier:
        break;
    }
    fail(ExitCode::internal, "internal error: {} by NCCL", collective_name(c.kind));
  }

  // Whole parts, because the host does not know the numbers of rows.
  ncclResult_t exchange(const CollectiveCall& c, cudaStream_t stream) {
    int ranks = 0;
    ncclResult_t result = nccl_.count(comm_, &ranks);
    if (result == ncclSuccess) result = nccl_.group_start();
    for (int peer = 0; peer < ranks && result == ncclSuccess; ++peer) {
      const size_t at = static_cast<size_t>(peer) * c.bytes();
      result = nccl_.send(static_cast<const std::byte*>(c.input) + at, c.bytes(), ncclUint8, peer,
                          comm_, stream);
      if (result != ncclSuccess) break;
      result = nccl_.receive(static_cast<std::byte*>(c.output) + at, c.bytes(), ncclUint8, peer,
                             comm_, stream);
    }
    const ncclResult_t ended = nccl_.group_end();
    return result != ncclSuccess ? result : ended;
  }

  void fail_with(ncclResult_t result) { fail_now(nccl_.text_of(result, comm_)); }

  // Requires the mutex. Without the abort the stream would wait forever.
  void fail_now(const std::string& reason) {
    failure_ = {last_, reason};
    failed_ = true;
    (void)nccl_.abort(comm_);
    comm_ = nullptr;
  }

  void poll() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPollEvery, [this] { return stopping_; })) {
      if (failed_) continue;
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl_.async_error(comm_, &state);
      const ncclResult_t found = asked != ncclSuccess ? asked : state;
      if (found != ncclSuccess && found != ncclInProgress) fail_with(found);
    }
  }

  const NcclLibrary& nccl_;
  CudaDevice& device_;
  StreamProgress marks_;
  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;
  CollectiveCall last_;
  CollectiveFailure failure_;
  std::atomic<bool> failed_ = false;
  bool stopping_ = false;
  std::thread poll_;  // last member: uses those above
};

const NcclLibrary& library() {
  if (!opened().problem.empty()) fail(ExitCode::device, "{}", opened().problem);
  return opened();
}

std::vector<std::byte> make_id() {
  const NcclLibrary& nccl = library();
  ncclUniqueId id;
  const ncclResult_t result = nccl.unique_id(&id);
  if (result != ncclSuccess) {
    fail(ExitCode::device, "no group of GPUs can be begun: {}; NCCL_DEBUG=INFO says more",
         nccl.text_of(result, nullptr));
  }
  std::vector<std::byte> bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::unique_ptr<CollectiveBackend> join(Device& device, std::span<const std::byte> bytes, int rank,
                                        int size) {
  ncclUniqueId id;
  check_internal(bytes.size() == sizeof id, "an id of {} bytes", bytes.size());
  std::memcpy(&id, bytes.data(), sizeof id);
  const NcclLibrary& nccl = library();
  auto& cuda = dynamic_cast<CudaDevice&>(device);
  ncclComm_t comm = nullptr;
  const ncclResult_t result =
      call_without_signals(cuda, [&] { return nccl.init_rank(&comm, size, id, rank); });
  if (result != ncclSuccess) {
    fail(ExitCode::device, "rank {} cannot join the other GPUs: {}; NCCL_DEBUG=INFO says more",
         rank, nccl.text_of(result, nullptr));
  }
  return std::make_unique<NcclBackend>(nccl, cuda, comm);
}

}  // namespace

const VendorCollectives* nccl_collectives() {
  static constexpr VendorCollectives offered{.library = [] { return library().name; },
                                             .problem = [] { return opened().problem; },
                                             .make_id = make_id,
                                             .join = join};
  return &offered;
}

}  // namespace dltrain

// An NCCL for tests (libnccl.so.2): ranks are processes of one machine that meet in shared memory.
// It asks the CUDA runtime for one thing, cudaLaunchHostFunc: so operations happen in the order of
// their stream, and with the fake runtime (cuda_runtime/fake_runtime.h) as late as they may. Sums
// are those of comm/reduce.h.
//
// DLTRAIN_STUB_NCCL_FAIL=RANK:N: that rank's operation N (from 0) of the group of all fails by
// itself, as a broken network would: all ranks have an asynchronous error and wait until they
// abort. DLTRAIN_STUB_NCCL_STALL=RANK:N: it never ends, for nobody, and there is no error;
// DLTRAIN_STUB_NCCL_STALL=RANK:N:alone: it ends on the others.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/reduce.h"

namespace {

using namespace dltrain;

constexpr int kMaxRanks = 8;
constexpr size_t kAreaBytes = size_t{8} << 20;  // of a rank: the largest input

struct Meeting {
  std::atomic<int> joined, left, waiting;
  std::atomic<uint64_t> round;
  std::atomic<bool> broken;
  std::atomic<uint64_t> sent[kMaxRanks][kMaxRanks], taken[kMaxRanks][kMaxRanks];  // [from][to]
};

struct Shared {
  Meeting meeting;
  alignas(4096) std::byte areas[kMaxRanks][kAreaBytes];
};

DType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DType::f32;
    case ncclFloat64:
      return DType::f64;
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat16:
      return DType::f16;
    case ncclInt32:
      return DType::i32;
    case ncclInt64:
      return DType::i64;
    default:
      return DType::u8;
  }
}

}  // namespace

struct ncclComm {
  Shared* shared = nullptr;
  std::string name;
  int rank = 0, size = 0;
  int64_t operations = 0, fails_at = -1, stalls_at = -1;
  bool stalls_alone = false;
  int splits = 0;
  std::atomic<bool> aborted = false;

  std::byte* area(int of) const { return shared->areas[of]; }

  // False: an error, here or elsewhere. Waits for the abort then, as NCCL's kernels do.
  template <typename Condition>
  bool wait_until(const Condition& condition) {
    while (!condition()) {
      if (shared->meeting.broken || aborted) return wait_for_abort();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }
  bool meet() {
    Meeting& m = shared->meeting;
    const uint64_t round = m.round;
    if (++m.waiting == size) {
      m.waiting = 0;
      ++m.round;
      return true;
    }
    return wait_until([&] { return m.round != round; });
  }
  bool wait_for_abort() const {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }
};

namespace {

struct Call {
  enum Kind { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, receive } kind;
  ncclComm* comm;
  const void* input;
  void* output;
  size_t count;
  DType dtype;
  ReduceOp op;
  int root;  // of a broadcast; otherwise the other one of two ranks
};

// One of the ranks' inputs, from element `first` on.
std::vector<const void*> parts_of(const Call& c, size_t first) {
  std::vector<const void*> parts;
  for (int r = 0; r < c.comm->size; ++r) {
    parts.push_back(c.comm->area(r) + first * dtype_size(c.dtype));
  }
  return parts;
}

void finish(const Call& c) {
  const size_t bytes = c.count * dtype_size(c.dtype);
  auto* out = static_cast<std::byte*>(c.output);
  const int ranks = c.comm->size;
  switch (c.kind) {
    case Call::all_reduce:
      return reduce_parts(parts_of(c, 0), out, c.count, c.dtype, c.op);
    case Call::reduce_scatter:
      return reduce_parts(parts_of(c, static_cast<size_t>(c.comm->rank) * c.count), out, c.count,
                          c.dtype, c.op);
    case Call::all_gather:
      for (int r = 0; r < ranks; ++r) std::memcpy(out + r * bytes, c.comm->area(r), bytes);
      return;
    case Call::all_to_all:
      for (int r = 0; r < ranks; ++r) {
        std::memcpy(out + r * bytes, c.comm->area(r) + c.comm->rank * bytes, bytes);
      }
      return;
    case Call::broadcast:
      std::memcpy(out, c.comm->area(c.root), bytes);
      return;
    case Call::send:
    case Call::receive:
      return;
  }
}

// A message of two ranks: the sender waits until the receiver has read its area.
void pass(const Call& c, size_t bytes) {
  Meeting& m = c.comm->shared->meeting;
  const int from = c.kind == Call::send ? c.comm->rank : c.root;
  const int to = c.kind == Call::send ? c.root : c.comm->rank;
  std::atomic<uint64_t>&sent = m.sent[from][to], &taken = m.taken[from][to];
  if (c.kind == Call::send) {
    ++sent;
    c.comm->wait_until([&] { return taken == sent; });
  } else if (c.comm->wait_until([&] { return sent > taken; })) {
    std::memcpy(c.output, c.comm->area(from), bytes);
    ++taken;
  }
}

[[noreturn]] void refuse(size_t bytes) {
  std::fprintf(stderr, "stub NCCL: an operation of %zu bytes\n", bytes);
  std::abort();
}

void run(void* argument) {
  const std::unique_ptr<Call> call(static_cast<Call*>(argument));
  ncclComm& comm = *call->comm;
  if (comm.aborted) return;
  if (comm.operations++ == comm.fails_at) {
    comm.shared->meeting.broken = true;
    comm.wait_for_abort();
    return;
  }
  const bool stalls = comm.operations - 1 == comm.stalls_at;
  if (stalls && !comm.stalls_alone) {
    comm.wait_for_abort();
    return;
  }
  const bool whole = call->kind == Call::reduce_scatter || call->kind == Call::all_to_all;
  const size_t bytes = call->count * dtype_size(call->dtype) * (whole ? comm.size : 1);
  if (bytes > kAreaBytes) refuse(bytes);
  if (call->input != nullptr) std::memcpy(comm.area(comm.rank), call->input, bytes);
  // Nobody writes its area before all have read it.
  if (call->kind == Call::send || call->kind == Call::receive) {
    pass(*call, bytes);
  } else if (comm.meet()) {
    finish(*call);
    comm.meet();
  }
  if (stalls) comm.wait_for_abort();
}

// The group of that name, when all of it are there.
ncclResult_t join(ncclComm_t* comm, const std::string& name, int flags, int size, int rank) {
  const int file = shm_open(name.c_str(), flags | O_RDWR, 0600);
  if (file < 0 || size > kMaxRanks) return ncclInvalidArgument;
  if (ftruncate(file, sizeof(Shared)) != 0) return ncclSystemError;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  *comm = new ncclComm{
      .shared = static_cast<Shared*>(memory), .name = name, .rank = rank, .size = size};
  ++(*comm)->shared->meeting.joined;
  while ((*comm)->shared->meeting.joined < size) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  shm_unlink(name.c_str());
  return ncclSuccess;
}

// Between ncclGroupStart and ncclGroupEnd.
struct GroupedCall {
  Call call;
  cudaStream_t stream;
};
thread_local bool in_group = false;
thread_local std::vector<GroupedCall> grouped;

ncclResult_t queue(const Call& call, cudaStream_t stream) {
  if (in_group) {
    grouped.push_back({call, stream});
    return ncclSuccess;
  }
  const cudaError_t code = cudaLaunchHostFunc(stream, run, new Call(call));
  return code == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error";
}
const char* ncclGetLastError(ncclComm_t) {
  return "of the stub";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  std::snprintf(id->internal, sizeof id->internal, "/dltrain-nccl-%d-%d", getpid(), made++);
  const int file = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return ncclSystemError;
  close(file);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  const ncclResult_t result = join(comm, id.internal, 0, size, rank);
  if (result != ncclSuccess) return result;
  int of = -1;
  long at = -1;
  const char* fails = std::getenv("DLTRAIN_STUB_NCCL_FAIL");
  if (fails != nullptr && std::sscanf(fails, "%d:%ld", &of, &at) == 2 && of == rank) {
    (*comm)->fails_at = at;
  }
  const char* stalls = std::getenv("DLTRAIN_STUB_NCCL_STALL");
  if (stalls != nullptr && std::sscanf(stalls, "%d:%ld", &of, &at) == 2 && of == rank) {
    (*comm)->stalls_at = at;
    (*comm)->stalls_alone = std::strstr(stalls, "alone") != nullptr;
  }
  return ncclSuccess;
}

// Ranks say their colours in their areas. Keys are not looked at: all are alike here.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* part, ncclConfig_t*) {
  const auto color_of = [&](int rank) -> int& { return *reinterpret_cast<int*>(comm->area(rank)); };
  color_of(comm->rank) = color;
  comm->meet();
  int size = 0, rank = 0;
  for (int r = 0; r < comm->size; ++r) {
    if (color_of(r) != color) continue;
    if (r < comm->rank) ++rank;
    ++size;
  }
  comm->meet();
  const std::string name =
      comm->name + "-" + std::to_string(++comm->splits) + "-" + std::to_string(color);
  return join(part, name, O_CREAT, size, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return ncclSuccess;
}
// The memory stays: operations on streams may still look at it.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->shared->meeting.broken ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return queue({Call::all_reduce, comm, input, output, count, type_of(type),
                op == ncclMax ? ReduceOp::max : ReduceOp::sum, 0},
               stream);
}
ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return queue({Call::reduce_scatter, comm, input, output, count, type_of(type),
                op == ncclMax ? ReduceOp::max : ReduceOp::sum, 0},
               stream);
}
ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue({Call::all_gather, comm, input, output, count, type_of(type), {}, 0}, stream);
}
ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const void* own = comm->rank == root ? input : nullptr;
  return queue({Call::broadcast, comm, own, output, count, type_of(type), {}, root}, stream);
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

// A group sends to all ranks and receives from all, one part of a buffer each, in order.
ncclResult_t ncclGroupStart() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  if (grouped.empty()) return ncclSuccess;
  const std::vector<GroupedCall> calls = std::exchange(grouped, {});
  Call call = calls[0].call;
  call.kind = Call::all_to_all;
  call.output = calls[1].call.output;
  if (calls.size() != 2 * static_cast<size_t>(call.comm->size)) return ncclInvalidUsage;
  for (size_t i = 0; i < calls.size(); ++i) {
    const size_t at = i / 2 * call.count * dtype_size(call.dtype);
    const Call& c = calls[i].call;
    const bool fits = i % 2 == 0 ? c.input == static_cast<const std::byte*>(call.input) + at
                                 : c.output == static_cast<std::byte*>(call.output) + at;
    if (!fits || c.count != call.count || c.root != static_cast<int>(i / 2))
      return ncclInvalidUsage;
  }
  return queue(call, calls[0].stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return queue({Call::send, comm, data, nullptr, count, type_of(type), {}, peer}, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return queue({Call::receive, comm, nullptr, data, count, type_of(type), {}, peer}, stream);
}

}  // extern "C"

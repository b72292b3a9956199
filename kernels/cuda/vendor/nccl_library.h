// The functions of libnccl.so.2, which is opened at the first use.
#pragma once

#include <string>

#include <nccl.h>

namespace dltrain {

struct NcclLibrary {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  std::string name;  // "NCCL 2.28.9"

  // Returns nullptr if the library is missing or too old; thread-safe.
  static const NcclLibrary* find();
  // Returns the reason if find() is nullptr, in one line; else an empty string.
  static const std::string& problem();

  // Returns "unhandled system error: …", with NCCL's message on the communicator (nullptr: none).
  std::string text_of(ncclResult_t result, ncclComm_t comm) const;
};

}  // namespace dltrain

// Runs a function as several real processes, each of them one rank, with a store to meet at.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/host_collectives.h"
#include "comm/store.h"
#include "device/device.h"

namespace dltrain::test {

// On the CPU a stream has nothing to do.
class NullStream : public Stream {
 public:
  void synchronize() override {}
};

struct RankContext {
  int rank;
  int size;
  int port;  // of the store
  NullStream stream;

  StoreClient client() const;
  std::unique_ptr<Collectives> collectives(std::chrono::milliseconds timeout,
                                           const std::string& group = "world") const;
};

struct RankResult {
  bool signalled = false;
  int code = 0;         // exit status or signal number
  std::string message;  // of the exception that ended the rank
};

// Forks `size` processes that run `body`. One that returns exits with 0; one that throws Error
// exits with its code, anything else with 99. Processes still there after `patience` (600 s
// under sanitizers) are killed.
std::vector<RankResult> run_ranks(int size, const std::function<void(RankContext&)>& body,
                                  std::chrono::seconds patience = std::chrono::seconds(30));

// Throws with the text unless the condition holds (Catch's macros do not work in child processes).
void expect(bool condition, const std::string& text);

// All ranks ended well; prints the messages of those that did not.
bool all_well(const std::vector<RankResult>& results);

}  // namespace dltrain::test

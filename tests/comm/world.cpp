// Ranks of which the first serves the store, as other launchers start them.
#include "comm/world.h"

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "ranks.h"
#include "shared/host_memory.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

int free_port() {
  const FileDescriptor socket = listen_on("127.0.0.1", 0);
  return bound_port(socket.get());
}

// A rank that is busy, between two collectives, until the watch finds that the run is lost.
class BusyRank {
 public:
  // `on_lost`: before that; it may end the process.
  BusyRank(const RankContext& context, int port, std::function<void()> on_lost = {})
      : device_(make_host_device("test", "")) {
    RankEnvironment environment;
    environment.rank = environment.local_rank = context.rank;
    environment.world_size = environment.local_world_size = context.size;
    environment.master_port = port;
    world_ = join_world(environment, *device_,
                        {.timeout = milliseconds(20'000),
                         .watch = {.on_lost = [this, on_lost](const std::string& message) {
                           if (on_lost) on_lost();
                           lost_.set_value(message);
                         }}});
  }
  World& world() { return world_; }
  [[noreturn]] void be_lost() { throw Error(ExitCode::rank, lost_.get_future().get()); }

 private:
  std::unique_ptr<Device> device_;
  std::promise<std::string> lost_;
  World world_;
};

// 'S': it sleeps, 'T': it was stopped, 'Z': it has ended.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end + 2 < text.size() ? text[name_end + 2] : 'Z';
}

}  // namespace

TEST_CASE("busy ranks learn why the one that serves the store fails") {
  const int port = free_port();
  const auto results = run_ranks(3, [&](RankContext& context) {
    BusyRank rank(context, port);
    if (context.rank != 0) rank.be_lost();
    rank.world().watch->report("the disk is full");
    throw Error(ExitCode::storage, "the disk is full");
  });
  CHECK(results[0].code == static_cast<int>(ExitCode::storage));
  for (const int rank : {1, 2}) {
    CHECK(results[rank].code == static_cast<int>(ExitCode::rank));
    CHECK_THAT(results[rank].message, Contains(") failed: the disk is full"));
    CHECK(results[rank].message.starts_with("rank 0 (process "));
  }
}

TEST_CASE("a rank that is late learns whom the one that serves the store has lost") {
  const int port = free_port();
  const auto results = run_ranks(3, [&](RankContext& context) {
    const auto end = [&] {
      if (context.rank == 0) _exit(static_cast<int>(ExitCode::rank));
    };
    BusyRank rank(context, port, end);
    StoreClient& store = *rank.world().store;
    if (context.rank == 1) store.set("victim", std::to_string(getpid()));
    if (context.rank == 2) {
      const pid_t self = getpid(), victim = std::stoi(store.get("victim"));
      if (fork() == 0) {
        kill(self, SIGSTOP);
        while (state_of(self) != 'T') usleep(1000);
        kill(victim, SIGKILL);
        usleep(400'000);  // longer than the first rank takes to find out, and for a busy one to end
        kill(self, SIGCONT);
        _exit(0);
      }
    }
    rank.be_lost();
  });
  for (const int rank : {0, 2}) CHECK(results[rank].code == static_cast<int>(ExitCode::rank));
  CHECK_THAT(results[2].message, Contains(") was lost"));
  CHECK(results[2].message.starts_with("rank 1 (process "));
}

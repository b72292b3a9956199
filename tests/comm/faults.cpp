// Peers that die, hang, disagree or never come: every rank left gets Error(rank) in time.
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;
using std::chrono::milliseconds;

namespace {

constexpr int kFaultsRankCode = static_cast<int>(ExitCode::rank);

bool contains_faults(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// All-reduces until something happens.
void work_faults(RankContext& context, Collectives& group, int steps, size_t count) {
  std::vector<float> data(count, 1.0f);
  for (int i = 0; i < steps; ++i) {
    group.wait(group.all_reduce(data.data(), count, DType::f32, ReduceOp::max, context.stream),
               context.stream);
  }
}

}  // namespace

TEST_CASE("a killed rank is noticed by all others at once") {
  const size_t count = GENERATE(size_t{10}, size_t{2'000'000});
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run_ranks(3, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(20'000));
    work_faults(context, *group, 3, count);
    if (context.rank == 1) raise(SIGKILL);
    work_faults(context, *group, 1000, count);
  });
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(10'000));
  CHECK(results[1].signalled);
  for (const int rank : {0, 2}) {
    INFO(results[rank].message);
    CHECK(results[rank].code == kFaultsRankCode);
    CHECK(contains_faults(results[rank].message, "lost rank"));
    CHECK(contains_faults(results[rank].message, "all_reduce"));
  }
}

TEST_CASE("with two ranks the lost one is named") {
  const auto results = run_ranks(2, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(20'000));
    work_faults(context, *group, 3, 1000);
    if (context.rank == 1) raise(SIGKILL);
    work_faults(context, *group, 1000, 1000);
  });
  INFO(results[0].message);
  CHECK(results[0].code == kFaultsRankCode);
  CHECK(contains_faults(results[0].message, "rank 0 of 2 in all_reduce of 1000 f32"));
  CHECK(contains_faults(results[0].message, "lost rank 1"));
}

TEST_CASE("a hanging rank is named at the timeout") {
  const auto results = run_ranks(2, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(300));
    if (context.rank == 1) {
      std::this_thread::sleep_for(milliseconds(1500));
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      work_faults(context, *group, 1, 1000);
    } catch (const Error&) {
      expect(std::chrono::steady_clock::now() - begin < milliseconds(1300), "too late");
      throw;
    }
  });
  INFO(results[0].message);
  CHECK(results[0].code == kFaultsRankCode);
  CHECK(contains_faults(results[0].message, "rank 1 did not answer within 300 ms"));
}

TEST_CASE("ranks that issue different operations never get each other's bytes") {
  // 3: more than the sockets hold, so that a rank may see first that nobody takes what it sends.
  const int kind = GENERATE(0, 1, 2, 3);
  const auto results = run_ranks(2, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(20'000));
    const size_t most = kind == 3 ? 8'000'000 : 1000;
    std::vector<float> data(most, 1.0f);
    const bool odd = context.rank == 1;
    Stream& s = context.stream;
    group->wait(
        kind == 0 ? group->all_reduce(data.data(), odd ? 999 : 1000, DType::f32, ReduceOp::sum, s)
        : kind == 1
            ? group->all_reduce(data.data(), 1000, odd ? DType::i32 : DType::f32, ReduceOp::sum, s)
        : odd ? group->broadcast(data.data(), 1000, DType::f32, 0, s)
              : group->all_reduce(data.data(), most, DType::f32, ReduceOp::sum, s),
        s);
  });
  for (const RankResult& r : results) {
    INFO(r.message);
    CHECK(r.code == kFaultsRankCode);
    // Whoever sees it second may see that the first has gone.
    CHECK((contains_faults(r.message, "has issued another operation") ||
           contains_faults(r.message, "lost rank")));
  }
  CHECK((contains_faults(results[0].message, "rank 1 has issued another operation") ||
         contains_faults(results[1].message, "rank 0 has issued another operation")));
}

TEST_CASE("after an error the group stays dead and says why") {
  const auto results = run_ranks(2, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(5000));
    if (context.rank == 1) return;
    std::vector<float> data(10);
    std::string first, second;
    try {
      group->wait(group->all_reduce(data.data(), 10, DType::f32, ReduceOp::sum, context.stream),
                  context.stream);
    } catch (const Error& e) {
      first = e.what();
    }
    try {
      group->barrier();
    } catch (const Error& e) {
      second = e.what();
    }
    expect(!first.empty() && first == second, "'" + first + "' then '" + second + "'");
  });
  CHECK(all_well(results));
}

TEST_CASE("a rank that fails by itself does not let the others wait") {
  const auto results = run_ranks(2, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(20'000));
    if (context.rank == 1) {
      std::vector<float> data(1'000'000);
      const auto first =
          group->all_reduce(data.data(), data.size(), DType::f32, ReduceOp::sum, context.stream);
      group->all_reduce(data.data(), 10, DType::f32, ReduceOp::sum, context.stream);
      group->settle();
      data = {};
      bool failed = false;
      try {
        group->wait(first, context.stream);
      } catch (const Error&) {
        failed = true;
      }
      expect(failed, "an operation that was ended did not fail");
      fail(ExitCode::data, "bad sample");
    }
    group->barrier();
  });
  CHECK(results[1].code == static_cast<int>(ExitCode::data));
  CHECK(results[0].code == kFaultsRankCode);
}

TEST_CASE("ranks that never come are named") {
  const auto results = run_ranks(3, [&](RankContext& context) {
    if (context.rank != 0) return;
    StoreClient store = context.client();
    std::make_unique<HostCollectives>(
        store, HostGroupOptions{.rank = 0, .size = 3, .connect_timeout = milliseconds(200)});
  });
  INFO(results[0].message);
  CHECK(results[0].code == kFaultsRankCode);
  CHECK(contains_faults(results[0].message, "did not connect: 1 2"));
}

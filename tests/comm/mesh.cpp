// Groups of some of the ranks: their arithmetic, and their collectives between real processes.
#include "comm/mesh.h"

#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "comm/watch.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

const Mesh& two_by_two() {
  static const Mesh mesh({{mesh_axes::kReplica, 2}, {mesh_axes::kShard, 2}});
  return mesh;
}

// Element i of rank r in operation `round`: small integers, whose sums are exact.
float value_mesh(int rank, size_t i, int round) {
  return static_cast<float>((static_cast<int>(i) * 7 + rank * 13 + round) % 17 - 8);
}

std::vector<float> values(int rank, size_t count, int round) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = value_mesh(rank, i, round);
  return out;
}

std::vector<float> sum_of(const std::vector<int>& ranks, size_t count, int round) {
  std::vector<float> out(count);
  for (int rank : ranks) {
    for (size_t i = 0; i < count; ++i) out[i] += value_mesh(rank, i, round);
  }
  return out;
}

// Reduces, scatters and gathers along an axis.
void check_group(RankContext& context, Collectives& group, const std::vector<int>& ranks,
                 size_t count) {
  Stream& s = context.stream;
  auto reduced = values(context.rank, count, 1);
  group.wait(group.all_reduce(reduced.data(), count, DType::f32, ReduceOp::sum, s), s);
  expect(reduced == sum_of(ranks, count, 1), fmt::format("all_reduce of {}", count));
  const size_t size = ranks.size();
  const auto whole = values(context.rank, count * size, 2);
  const auto expected = sum_of(ranks, count * size, 2);
  std::vector<float> part(count), all(count * size);
  group.wait(group.reduce_scatter(whole.data(), part.data(), count, DType::f32, ReduceOp::sum, s),
             s);
  expect(std::equal(part.begin(), part.end(),
                    expected.begin() + static_cast<std::ptrdiff_t>(count) * group.rank()),
         fmt::format("reduce_scatter of {}", count));
  group.wait(group.all_gather(part.data(), all.data(), count, DType::f32, s), s);
  expect(all == expected, fmt::format("all_gather of {}", count));
}

}  // namespace

TEST_CASE("sets of axes are called by the keys of parallelism") {
  const Mesh mesh({{"pipeline", 2},
                   {"replica", 2},
                   {"shard", 2},
                   {"expert", 1},
                   {"context", 2},
                   {"context_expert", 2},
                   {"tensor", 3}});
  CHECK(mesh.keys("") == "pipeline, data, context, tensor");
  CHECK(mesh.keys(mesh_axes::kPipelineBack) == "pipeline");
  CHECK(mesh.keys(mesh_axes::kData) == "data");
  CHECK(mesh.keys(mesh_axes::kContext) == "context");
  CHECK(Mesh().keys("").empty());
}

TEST_CASE("a mesh knows the groups of every rank along every axis") {
  const Mesh mesh({{"pipeline", 2}, {"replica", 3}, {"shard", 4}});
  CHECK(mesh.size() == 24);
  CHECK(mesh.size("shard") == 4);
  CHECK(mesh.size("tensor") == 1);
  CHECK(mesh.coordinate(17, "pipeline") == 1);
  CHECK(mesh.coordinate(17, "replica") == 1);
  CHECK(mesh.coordinate(17, "shard") == 1);
  CHECK(mesh.group(17, "shard") == std::vector<int>{16, 17, 18, 19});
  CHECK(mesh.group(17, "replica") == std::vector<int>{13, 17, 21});
  CHECK(mesh.group(17, "pipeline") == std::vector<int>{5, 17});
  CHECK(mesh.group(17, "tensor") == std::vector<int>{17});
  CHECK(mesh.group(17, "").size() == 24);
  // Along every axis each rank is in one group, of which all members have the same list.
  for (const MeshAxis& axis : mesh.axes()) {
    for (int rank = 0; rank < mesh.size(); ++rank) {
      for (int member : mesh.group(rank, axis.name)) {
        CHECK(mesh.group(member, axis.name) == mesh.group(rank, axis.name));
      }
    }
  }
}

TEST_CASE("sets of axes are named without axes of one rank, and have groups") {
  const Mesh mesh({{"replica", 2}, {"shard", 1}, {"context", 2}, {"tensor", 3}});
  CHECK(mesh.over("replica,shard") == "replica");
  CHECK(mesh.over("tensor,replica") == "replica,tensor");
  CHECK(mesh.over("replica,context,tensor").empty());  // all ranks
  CHECK(mesh.group(7, "replica,context") == std::vector<int>{1, 4, 7, 10});
  CHECK(mesh.group(7, "context,tensor") == std::vector<int>{6, 7, 8, 9, 10, 11});
  CHECK(mesh.group(7, "replica,context,tensor").size() == 12);
  CHECK(mesh.size("replica,context") == 4);
  CHECK(mesh.coordinate(7, "replica,context") == 2);
  CHECK(mesh.coordinate(7, "context,tensor") == 1);
  CHECK(mesh.coordinate(7, "pipeline") == 0);
}

TEST_CASE("a rank's samples and shards follow from its coordinates") {
  const Mesh mesh({{"replica", 2}, {"shard", 2}, {"tensor", 2}});
  std::vector<std::pair<int, int>> places;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const RankCoordinates at = coordinates_of(mesh, rank);
    CHECK(at.data.count == 4);
    CHECK(at.tensor.count == 2);
    places.emplace_back(at.data.index, at.tensor.index);
  }
  CHECK(places == std::vector<std::pair<int, int>>{
                      {0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}});
}

TEST_CASE("ranks of one context have the same samples") {
  const Mesh mesh({{"replica", 1}, {"shard", 2}, {"context", 2}, {"tensor", 2}});
  const RankCoordinates at = coordinates_of(mesh, 6);
  CHECK((at.data.index == 1 && at.data.count == 2));
  CHECK((at.context.index == 1 && at.context.count == 2));
  CHECK(at.tensor.index == 0);
}

TEST_CASE("axes of one name, or of more ranks than can be counted, are a bug") {
  CHECK_THROWS_WITH(Mesh({{"shard", 2}, {"replica", 2}, {"shard", 3}}),
                    Contains("two axes 'shard'"));
  CHECK_THROWS_WITH(Mesh({{"replica", 1 << 16}, {"shard", 1 << 15}}), Contains("more ranks than"));
  CHECK(Mesh({{"replica", 1 << 15}, {"shard", 1 << 15}}).size() == 1 << 30);
}

TEST_CASE("collectives of parts of the ranks give the answers of their members") {
  const auto results = run_ranks(4, [](RankContext& context) {
    const auto world = context.collectives(milliseconds(20'000));
    {
      const MeshGroups groups(*world, two_by_two(), {mesh_axes::kReplica, mesh_axes::kShard});
      for (const char* axis : {mesh_axes::kShard, mesh_axes::kReplica, ""}) {
        Collectives& group = groups.along(axis);
        const auto ranks = two_by_two().group(context.rank, axis);
        expect(group.size() == static_cast<int>(ranks.size()) &&
                   ranks[static_cast<size_t>(group.rank())] == context.rank,
               "rank and size");
        for (const size_t count : {size_t{1}, size_t{1000}, size_t{4097}, size_t{600'011}}) {
          check_group(context, group, ranks, count);
        }
        group.barrier();
      }
    }
    world->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("groups that share ranks work at the same time and end in any order") {
  const auto results = run_ranks(4, [](RankContext& context) {
    constexpr size_t kCount = 50'000;
    const auto world = context.collectives(milliseconds(20'000));
    {
      const MeshGroups groups(*world, two_by_two(), {mesh_axes::kReplica, mesh_axes::kShard});
      const char* axes[] = {"", mesh_axes::kShard, mesh_axes::kReplica};
      Stream& s = context.stream;
      for (int round = 0; round < 20; ++round) {
        std::vector<float> data[3];
        Collectives::Ticket tickets[3];
        // Ranks begin with another group each; within a group the order is the same.
        for (int i = 0; i < 3; ++i) {
          const int k = (i + context.rank) % 3;
          data[k] = values(context.rank, kCount, round + k);
          tickets[k] = groups.along(axes[k]).all_reduce(data[k].data(), kCount, DType::f32,
                                                        ReduceOp::sum, s);
        }
        for (int k : {2, 0, 1}) {
          groups.along(axes[k]).wait(tickets[k], s);
          expect(data[k] == sum_of(two_by_two().group(context.rank, axes[k]), kCount, round + k),
                 fmt::format("round {} over '{}'", round, axes[k]));
        }
      }
    }
    world->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("a rank that is killed ends the groups that it is not in, too") {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run_ranks(4, [](RankContext& context) {
    const auto world = context.collectives(milliseconds(20'000));
    const MeshGroups groups(*world, two_by_two(), {mesh_axes::kReplica, mesh_axes::kShard});
    Collectives& shard = groups.along(mesh_axes::kShard);
    std::vector<float> data(1000, 1.0f);
    const auto reduce = [&](Collectives& group) {
      group.wait(
          group.all_reduce(data.data(), data.size(), DType::f32, ReduceOp::max, context.stream),
          context.stream);
    };
    for (int step = 0;; ++step) {
      if (step == 5 && context.rank == 3) raise(SIGKILL);
      reduce(shard);
      if (step % 3 == 2) reduce(*world);
    }
  });
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(10'000));
  for (const int rank : {0, 1, 2}) {
    INFO(results[static_cast<size_t>(rank)].message);
    CHECK(results[static_cast<size_t>(rank)].code == static_cast<int>(ExitCode::rank));
  }
  INFO(results[2].message);
  CHECK(results[2].message.starts_with("rank 2 of 4 (among ranks 2, 3) in all_reduce"));
  CHECK(results[2].message.find("lost rank 3") != std::string::npos);
}

TEST_CASE("abandoning the whole ends a wait in a part") {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run_ranks(2, [](RankContext& context) {
    const auto world = context.collectives(milliseconds(20'000));
    const auto part = world->split(std::vector<int>{0, 1});
    if (context.rank == 1) {
      std::this_thread::sleep_for(milliseconds(1000));  // has not begun what rank 0 waits for
      return;
    }
    float one = 1;
    const auto ticket = part->all_reduce(&one, 1, DType::f32, ReduceOp::sum, context.stream);
    std::thread other([&] { world->abort(); });
    other.join();
    part->wait(ticket, context.stream);
  });
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(10'000));
  INFO(results[0].message);
  CHECK(results[0].code == static_cast<int>(ExitCode::rank));
}

TEST_CASE("the rank that hangs is found among the members of the group that waits") {
  const auto results = run_ranks(4, [](RankContext& context) {
    StoreClient store = context.client();
    RankWatch watch(store, {.rank = context.rank,
                            .size = context.size,
                            .timeout = milliseconds(600),
                            .straggler_factor = 0,
                            .on_lost = [](const std::string&) { _exit(6); }});
    const auto world =
        std::make_unique<HostCollectives>(store, HostGroupOptions{.rank = context.rank,
                                                                  .size = context.size,
                                                                  .timeout = milliseconds(600),
                                                                  .watch = &watch});
    const MeshGroups groups(*world, two_by_two(), {mesh_axes::kReplica, mesh_axes::kShard});
    Collectives& shard = groups.along(mesh_axes::kShard);
    std::vector<float> data(10, 1.0f);
    for (int step = 0; step < 100; ++step) {
      watch.at_step_begin(step);
      // Ranks 0 and 1 have no reason to wait yet, and have begun fewer operations than rank 2.
      if (step == 3 && context.rank < 2) std::this_thread::sleep_for(milliseconds(900));
      if (step == 4 && context.rank == 3) std::this_thread::sleep_for(milliseconds(20'000));
      shard.wait(
          shard.all_reduce(data.data(), data.size(), DType::f32, ReduceOp::max, context.stream),
          context.stream);
      watch.at_step_end(step);
    }
  });
  INFO(results[2].message);
  CHECK(results[2].code == static_cast<int>(ExitCode::rank));
  CHECK(results[2].message.starts_with("rank 3 (process "));
  CHECK(results[2].message.find("hangs at step 5") != std::string::npos);
}

// Messages between two ranks on 2 to 4 real processes: what each way to send and receive means, and
// which orders of them end (device/collectives.h).
#include <cstring>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/single.h"
#include "device/collectives.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kMessagesTimeout{20'000};
constexpr DType kMessagesAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32,
                                  DType::i64, DType::u8,  DType::i8,   DType::u16, DType::boolean};

// What rank `from` sends as its message `number`.
std::vector<std::byte> letter(int from, int number, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((i * 31 + i / 251 + from * 7 + number * 101) & 0xff);
  }
  return data;
}

int next_of(const Collectives& group) {
  return (group.rank() + 1) % group.size();
}
int previous_of(const Collectives& group) {
  return (group.rank() + group.size() - 1) % group.size();
}

// Passes one message on round the ring; messages of rank r have count + r elements.
void pass_round(Collectives& group, size_t count, DType dtype, Stream& s) {
  const size_t size = dtype_size(dtype);
  const auto count_of = [&](int rank) {
    return count == 0 ? 0 : count + static_cast<size_t>(rank);
  };
  const auto sent = letter(group.rank(), 1, count_of(group.rank()) * size);
  const int previous = previous_of(group);
  std::vector<std::byte> got(count_of(previous) * size);
  group.wait(group.exchange({sent.data(), count_of(group.rank()), next_of(group)},
                            {got.data(), count_of(previous), previous}, dtype, s),
             s);
  expect(got == letter(previous, 1, got.size()), fmt::format("{} {}", count, dtype_name(dtype)));
}

}  // namespace

TEST_CASE("all ranks of a ring exchange with their neighbours at the same time, in every dtype") {
  const int size = GENERATE(2, 3, 4);
  const auto results = run_ranks(size, [](RankContext& context) {
    const auto group = context.collectives(kMessagesTimeout);
    for (const DType dtype : kMessagesAll) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
        pass_round(*group, count, dtype, context.stream);
      }
    }
    pass_round(*group, 1'000'000, DType::u8, context.stream);
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("the halves of exchanges meet sends and receives, and messages keep their order") {
  const int size = GENERATE(2, 3, 4);
  const auto results = run_ranks(size, [](RankContext& context) {
    const auto group = context.collectives(kMessagesTimeout);
    Stream& s = context.stream;
    constexpr size_t kCount = 5000;
    const int own = context.rank, last = context.size - 1;
    // Down a line: the ends have one half each.
    for (int number = 0; number < 3; ++number) {
      const auto sent = letter(own, number, kCount);
      std::vector<std::byte> got(kCount);
      if (own == 0) group->wait(group->send(sent.data(), kCount, DType::u8, 1, s), s);
      if (own == last) group->wait(group->receive(got.data(), kCount, DType::u8, own - 1, s), s);
      if (own > 0 && own < last) {
        group->wait(group->exchange({sent.data(), kCount, own + 1}, {got.data(), kCount, own - 1},
                                    DType::u8, s),
                    s);
      }
      expect(own == 0 || got == letter(own - 1, number, kCount), "down the line");
    }
    // Several under way between one pair, with a collective among them.
    std::vector<std::byte> letters[4];
    std::vector<float> sum{1};
    Collectives::Ticket tickets[5];
    for (int i = 0; i < 4; ++i) {
      letters[i] = own == 0 ? letter(0, i, kCount) : std::vector<std::byte>(kCount);
      if (i == 2) tickets[4] = group->all_reduce(sum.data(), 1, DType::f32, ReduceOp::sum, s);
      if (own == 0) tickets[i] = group->send(letters[i].data(), kCount, DType::u8, last, s);
      if (own == last) tickets[i] = group->receive(letters[i].data(), kCount, DType::u8, 0, s);
    }
    group->wait(tickets[4], s);
    for (int i = 0; i < 4; ++i) {
      if (own != 0 && own != last) continue;
      group->wait(tickets[i], s);
      expect(letters[i] == letter(0, i, kCount), fmt::format("message {}", i));
    }
    expect(sum[0] == static_cast<float>(context.size), "the sum among them");
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("an exchange with itself is a copy") {
  const auto results = run_ranks(2, [](RankContext& context) {
    const auto group = context.collectives(kMessagesTimeout);
    const auto sent = letter(context.rank, 4, 999);
    std::vector<std::byte> got(999);
    group->wait(group->exchange({sent.data(), 999, context.rank}, {got.data(), 999, context.rank},
                                DType::u8, context.stream),
                context.stream);
    expect(got == sent, "the copy");
    group->barrier();
  });
  CHECK(all_well(results));
}

// On GPUs this waits for ever, so it must not work on CPUs.
TEST_CASE("ranks that send to each other before they receive do not come to an end") {
  const int size = GENERATE(2, 3);
  const size_t count = GENERATE(size_t{1}, size_t{1'000'000});
  const auto results = run_ranks(size, [&](RankContext& context) {
    const auto group = context.collectives(milliseconds(300));
    std::vector<std::byte> sent(count), got(count);
    Stream& s = context.stream;
    const auto first = group->send(sent.data(), count, DType::u8, next_of(*group), s);
    const auto second = group->receive(got.data(), count, DType::u8, previous_of(*group), s);
    group->wait(first, s);
    group->wait(second, s);
  });
  int by_time = 0;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    INFO(results[rank].message);
    CHECK(results[rank].code == static_cast<int>(ExitCode::rank));
    CHECK_THAT(results[rank].message, Contains(fmt::format("in send of {} u8 to rank {}", count,
                                                           (rank + 1) % results.size())));
    by_time += results[rank].message.find("did not answer within") != std::string::npos ? 1 : 0;
  }
  CHECK(by_time > 0);
}

namespace {

// Takes everything that is an operation.
class AnyGroup final : public Collectives {
 public:
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void wait(Ticket, Stream&) override {}
  void barrier() override {}

 private:
  Ticket queue(const CollectiveCall&, Stream&) override { return 1; }
};

}  // namespace

TEST_CASE("what cannot be an operation is a bug, on every backend alike") {
  AnyGroup group;
  HostStream s;
  float data[8] = {}, more[8] = {};
  CHECK(group.send(data, 8, DType::f32, 2, s) == 1);
  CHECK(group.exchange({data, 8, 1}, {more, 8, 1}, DType::u16, s) == 1);
  const auto refused = [&](const char* reason, const auto& call) {
    CHECK_THROWS_WITH(call(), Catch::Matchers::StartsWith("internal error: rank 1 of 3: ") &&
                                  Catch::Matchers::EndsWith(reason));
  };
  refused("send of 8 f32 to rank 3: there is no such rank",
          [&] { group.send(data, 8, DType::f32, 3, s); });
  refused("receive of 8 f32 from rank 1: it has one end",
          [&] { group.receive(data, 8, DType::f32, 1, s); });
  refused("exchange of 8 f32 to rank 1 for 8 from rank 2: it has one end", [&] {
    group.exchange({data, 8, 1}, {more, 8, 2}, DType::f32, s);
  });
  refused("exchange of 8 f32 to rank 1 for 4 from rank 1: it gives itself another number", [&] {
    group.exchange({data, 8, 1}, {more, 4, 1}, DType::f32, s);
  });
  refused("exchange of 8 f32 to rank 0 for 1 from rank 2: both are in one place", [&] {
    group.exchange({data, 8, 0}, {data + 7, 1, 2}, DType::f32, s);
  });
  refused("all_reduce of 8 u16: its dtype has no sums",
          [&] { group.all_reduce(data, 8, DType::u16, ReduceOp::sum, s); });
  refused("broadcast of 8 u16: there is no such root",
          [&] { group.broadcast(data, 8, DType::u16, -1, s); });
  refused("all_gather of 72057594037927936 u8: so many there are nowhere",
          [&] { group.all_gather(data, more, size_t{1} << 56, DType::u8, s); });
  refused("barrier: streams have none", [&] { group.issue({}, s); });
  CHECK_THROWS_WITH(group.send(data, 8, DType::f32, -1, s), Contains("send to rank -1"));
}

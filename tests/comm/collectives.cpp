// Every operation and type on 2 to 4 real processes, against answers computed from the ranks'
// inputs.
#include "device/collectives.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/reduce.h"
#include "comm/world.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;

namespace {

constexpr std::chrono::milliseconds kCollectivesTimeout{20'000};
constexpr DType kReducible[] = {DType::f32, DType::f64,  DType::i32,
                                DType::i64, DType::bf16, DType::f16};
constexpr DType kCollectivesAll[] = {DType::f32, DType::f64,    DType::bf16, DType::f16,
                                     DType::i32, DType::i64,    DType::u8,   DType::i8,
                                     DType::u16, DType::boolean};
// Around the borders of the small path (16 KiB), of a segment (1 MiB) and of the window (2 MiB).
constexpr size_t kCounts[] = {0, 1, 2, 3, 17, 1000, 4096, 4097, 65'537, 262'147, 1'100'003};

// Small integers, whose sums are exact in every type.
int value_collectives(size_t i, int rank) {
  return static_cast<int>((i * 7 + rank * 13 + i / 1000) % 17) - 8;
}

std::vector<std::byte> encode(const std::vector<int>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_size(dtype));
  const auto put = [&](auto convert) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto x = convert(values[i]);
      std::memcpy(bytes.data() + i * sizeof(x), &x, sizeof(x));
    }
  };
  switch (dtype) {
    case DType::f32:
      put([](int v) { return static_cast<float>(v); });
      break;
    case DType::f64:
      put([](int v) { return static_cast<double>(v); });
      break;
    case DType::i32:
      put([](int v) { return static_cast<int32_t>(v); });
      break;
    case DType::i64:
      put([](int v) { return static_cast<int64_t>(v); });
      break;
    case DType::bf16:
      put([](int v) {
        return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
      });
      break;
    case DType::f16:
      put([](int v) {  // exact for small integers: sign, exponent and ten leading bits
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(v));
        if (v == 0) return uint16_t{0};
        return static_cast<uint16_t>((bits >> 16 & 0x8000u) |
                                     ((bits & 0x7fffffffu) - 0x38000000u) >> 13);
      });
      break;
    default:
      put([](int v) { return static_cast<uint8_t>(v); });
  }
  return bytes;
}

std::vector<std::byte> input_of(int rank, size_t begin, size_t count, DType dtype) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_collectives(begin + i, rank);
  return encode(values, dtype);
}

std::vector<std::byte> reduced(int ranks, size_t begin, size_t count, DType dtype, ReduceOp op) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = value_collectives(begin + i, 0);
    for (int r = 1; r < ranks; ++r) {
      const int v = value_collectives(begin + i, r);
      values[i] = op == ReduceOp::sum ? values[i] + v : std::max(values[i], v);
    }
  }
  return encode(values, dtype);
}

std::vector<std::byte> pattern(int from, int to, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((i * 31 + i / 251 + from * 7 + to * 101) & 0xff);
  }
  return data;
}

void check_all_reduce(RankContext& context, Collectives& group) {
  for (const DType dtype : kReducible) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const size_t count : kCounts) {
        if (count > 300'000 && (dtype != DType::f32 || op != ReduceOp::sum)) continue;
        auto data = input_of(context.rank, 0, count, dtype);
        group.wait(group.all_reduce(data.data(), count, dtype, op, context.stream), context.stream);
        expect(data == reduced(context.size, 0, count, dtype, op),
               fmt::format("all_reduce of {} {}", count, dtype_name(dtype)));
      }
    }
  }
}

void check_reduce_scatter(RankContext& context, Collectives& group) {
  for (const DType dtype : kReducible) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{33}, size_t{4097}, size_t{300'001}}) {
      const auto input = input_of(context.rank, 0, count * context.size, dtype);
      std::vector<std::byte> output(count * dtype_size(dtype));
      group.wait(group.reduce_scatter(input.data(), output.data(), count, dtype, ReduceOp::sum,
                                      context.stream),
                 context.stream);
      expect(output == reduced(context.size, count * context.rank, count, dtype, ReduceOp::sum),
             fmt::format("reduce_scatter of {} {}", count, dtype_name(dtype)));
    }
  }
}

void check_moves(RankContext& context, Collectives& group) {
  for (const DType dtype : kCollectivesAll) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{999}, size_t{70'001}}) {
      const size_t bytes = count * dtype_size(dtype);
      const std::string what = fmt::format(" of {} {}", count, dtype_name(dtype));
      const auto own = pattern(context.rank, 0, bytes);
      std::vector<std::byte> all(bytes * context.size), expected;
      for (int r = 0; r < context.size; ++r) {
        const auto part = pattern(r, 0, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      group.wait(group.all_gather(own.data(), all.data(), count, dtype, context.stream),
                 context.stream);
      expect(all == expected, "all_gather" + what);

      for (int root = 0; root < context.size; ++root) {
        auto data = pattern(context.rank, 5, bytes);
        group.wait(group.broadcast(data.data(), count, dtype, root, context.stream),
                   context.stream);
        expect(data == pattern(root, 5, bytes), "broadcast" + what);
      }
    }
  }
}

// Whole parts, and rows of which each pair of ranks has another number, also none.
void check_all_to_all(RankContext& context, Collectives& group) {
  constexpr size_t kRow = 3;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::f64}) {
    for (const size_t rows : {size_t{0}, size_t{1}, size_t{6}, size_t{9000}}) {
      const size_t row = kRow * dtype_size(dtype), part = rows * row;
      const auto rows_of = [&](int from, int to) {
        return static_cast<int32_t>(rows * static_cast<size_t>((from + 2 * to) % 4) / 3);
      };
      std::vector<std::byte> input, output(part * context.size, std::byte{0xaa}), whole = output;
      std::vector<std::byte> expected, parts;
      std::vector<int32_t> sent, received;
      for (int r = 0; r < context.size; ++r) {
        const auto to = pattern(context.rank, r, part), from = pattern(r, context.rank, part);
        input.insert(input.end(), to.begin(), to.end());
        parts.insert(parts.end(), from.begin(), from.end());
        sent.push_back(rows_of(context.rank, r));
        received.push_back(rows_of(r, context.rank));
        const size_t used = static_cast<size_t>(received.back()) * row;
        expected.insert(expected.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(used));
        expected.resize(part * static_cast<size_t>(r + 1), std::byte{0xaa});
      }
      CollectiveCall call{.kind = CollectiveKind::all_to_all,
                          .dtype = dtype,
                          .input = input.data(),
                          .output = whole.data(),
                          .count = rows * kRow,
                          .row = kRow};
      group.wait(group.issue(call, context.stream), context.stream);
      expect(whole == parts, fmt::format("all_to_all of {} rows", rows));
      call.output = output.data();
      call.sent_rows = sent.data();
      call.received_rows = received.data();
      group.wait(group.issue(call, context.stream), context.stream);
      expect(output == expected, fmt::format("all_to_all of some of {} rows", rows));
    }
  }
}

// Every pair of ranks, in the order of one sequence of all messages, in both directions, between
// collectives.
void check_pairs(RankContext& context, Collectives& group) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{999}, size_t{1'100'003}}) {
    for (int from = 0; from < context.size; ++from) {
      for (int to = 0; to < context.size; ++to) {
        if (from == to) continue;
        std::vector<std::byte> data(count * sizeof(float));
        const auto sent = pattern(from, to, data.size());
        if (context.rank == from) {
          const auto ticket = group.send(sent.data(), count, DType::f32, to, context.stream);
          group.wait(ticket, context.stream);
        } else if (context.rank == to) {
          const auto ticket = group.receive(data.data(), count, DType::f32, from, context.stream);
          group.wait(ticket, context.stream);
          expect(data == sent, fmt::format("{} f32 from {} to {}", count, from, to));
        }
      }
      // The ranks have sent different numbers of messages.
      int32_t one = 1;
      group.wait(group.all_reduce(&one, 1, DType::i32, ReduceOp::sum, context.stream),
                 context.stream);
      expect(one == context.size, "a sum between messages");
    }
  }
}

// Arbitrary bit patterns of finite floats of many magnitudes.
std::vector<float> noise(int rank, size_t count) {
  std::vector<float> values(count);
  uint32_t state = 12345u + 777u * rank;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = std::ldexp(static_cast<float>(state >> 8) - 8388608.0f,
                   static_cast<int>(state >> 3 & 15) - 30);
  }
  return values;
}

}  // namespace

TEST_CASE("every collective gives the computed answer for every type and size") {
  const int size = GENERATE(2, 3, 4);
  const auto results = run_ranks(size, [](RankContext& context) {
    const auto group = context.collectives(kCollectivesTimeout);
    expect(group->rank() == context.rank && group->size() == context.size, "rank and size");
    check_all_reduce(context, *group);
    check_reduce_scatter(context, *group);
    check_moves(context, *group);
    check_all_to_all(context, *group);
    check_pairs(context, *group);
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("a sum depends on the ranks' values only, not on how the data is cut") {
  const int size = GENERATE(2, 3, 4);
  const auto results = run_ranks(size, [](RankContext& context) {
    constexpr size_t kCount = 500'009;
    const auto group = context.collectives(kCollectivesTimeout);
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < context.size; ++r) inputs.push_back(noise(r, kCount));
    std::vector<float> expected(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const float left = inputs[0][i] + inputs[1][i];
      expected[i] = context.size == 2   ? left
                    : context.size == 3 ? left + inputs[2][i]
                                        : left + (inputs[2][i] + inputs[3][i]);
    }
    Stream& s = context.stream;
    const auto own = inputs[context.rank];
    const auto same = [&](const float* a, size_t begin, size_t count) {
      return std::memcmp(a, expected.data() + begin, count * sizeof(float)) == 0;
    };
    auto whole = own;
    group->wait(group->all_reduce(whole.data(), kCount, DType::f32, ReduceOp::sum, s), s);
    expect(same(whole.data(), 0, kCount), "the whole in one piece");
    auto pieces = own;
    size_t begin = 0;
    Collectives::Ticket last = 0;
    for (const size_t count : {size_t{1}, size_t{3000}, size_t{70'000}, size_t{427'008}}) {
      last = group->all_reduce(pieces.data() + begin, count, DType::f32, ReduceOp::sum, s);
      begin += count;
    }
    group->wait(last, s);
    expect(begin == kCount && same(pieces.data(), 0, kCount), "in four pieces");
    const size_t each = kCount / context.size;
    std::vector<float> chunk(each);
    group->wait(group->reduce_scatter(own.data(), chunk.data(), each, DType::f32, ReduceOp::sum, s),
                s);
    expect(same(chunk.data(), each * context.rank, each), "scattered");
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("operations run in the order of issue, and more than the queue holds may be issued") {
  const auto results = run_ranks(2, [](RankContext& context) {
    const auto group = context.collectives(kCollectivesTimeout);
    Stream& s = context.stream;
    std::vector<int32_t> data(5000, 1);
    Collectives::Ticket last = 0, before = 0;
    // Sum (×2), then rank 1 overwrites rank 0's copy: only this order gives 2^n modulo 2^32.
    for (int i = 0; i < 1500; ++i) {
      last = group->all_reduce(data.data(), i % 2 ? 5000 : 10, DType::i32, ReduceOp::sum, s);
      expect(last == before + 1, "tickets count up");
      before = last;
      if (i % 100 == 99) last = before = group->broadcast(data.data(), 5000, DType::i32, 1, s);
    }
    group->wait(last, s);
    std::vector<uint32_t> sum(5000, 1);
    for (int i = 0; i < 1500; ++i) {
      for (int k = 0; k < (i % 2 ? 5000 : 10); ++k) sum[k] *= 2;
    }
    expect(std::memcmp(sum.data(), data.data(), sum.size() * 4) == 0, "the sums");
    group->wait(1, s);  // an old ticket
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("messages between two ranks do not hold up the ranks that issue them") {
  // A pipeline of two stages: three micro-batches forward, and their answers, all issued at once.
  const auto results = run_ranks(2, [](RankContext& context) {
    const auto group = context.collectives(kCollectivesTimeout);
    Stream& s = context.stream;
    constexpr size_t kCount = 200'000;
    std::vector<std::vector<float>> forward(3, std::vector<float>(kCount)), back = forward;
    Collectives::Ticket last = 0;
    for (size_t i = 0; i < 3; ++i) {
      const bool first = context.rank == 0;
      std::fill(forward[i].begin(), forward[i].end(), first ? static_cast<float>(i + 1) : 0.0f);
      std::fill(back[i].begin(), back[i].end(), first ? 0.0f : static_cast<float>(i + 10));
      last = first ? group->send(forward[i].data(), kCount, DType::f32, 1, s)
                   : group->receive(forward[i].data(), kCount, DType::f32, 0, s);
      expect(last == 2 * i + 1, "tickets count up");
      last = first ? group->receive(back[i].data(), kCount, DType::f32, 1, s)
                   : group->send(back[i].data(), kCount, DType::f32, 0, s);
    }
    group->wait(last, s);
    for (size_t i = 0; i < 3; ++i) {
      expect(forward[i] == std::vector<float>(kCount, static_cast<float>(i + 1)), "forward");
      expect(back[i] == std::vector<float>(kCount, static_cast<float>(i + 10)), "back");
    }
    group->barrier();
  });
  CHECK(all_well(results));
}

TEST_CASE("low precision is combined in f32 and rounded once, to nearest even") {
  // bf16: 1 + 3 * 2^-8; a rounding after each addition of 2^-8 would stay at 1 (ties to even).
  const uint16_t one = 0x3f80, tiny = 0x3b80;
  const void* parts[] = {&one, &tiny, &tiny, &tiny};
  uint16_t out = 0;
  reduce_parts(parts, &out, 1, DType::bf16, ReduceOp::sum);
  CHECK(out == 0x3f82);

  // f16, all values: x + 0 is x, whatever x (subnormals, infinities; NaN stays NaN).
  const uint16_t zero = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    const void* pair[] = {&x, &zero};
    reduce_parts(pair, &out, 1, DType::f16, ReduceOp::sum);
    const bool nan = (bits & 0x7fff) > 0x7c00;
    if (nan ? (out & 0x7fff) <= 0x7c00 : out != (bits == 0x8000 ? 0 : x)) {
      FAIL("f16 " << bits << " became " << out);
    }
  }
  // 65504 + 16 is a tie between the largest f16 and what would be 2^16: even is infinity.
  const uint16_t largest = 0x7bff, sixteen = 0x4c00;
  const void* overflow[] = {&largest, &sixteen};
  reduce_parts(overflow, &out, 1, DType::f16, ReduceOp::sum);
  CHECK(out == 0x7c00);
  // 1 + 2^-11 is a tie: even is 1.
  const uint16_t unit = 0x3c00, half_step = 0x1000;
  const void* tie[] = {&unit, &half_step};
  reduce_parts(tie, &out, 1, DType::f16, ReduceOp::sum);
  CHECK(out == 0x3c00);
}

TEST_CASE("a maximum with a NaN is NaN, wherever it stands") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), one = 1, two = 2;
  float out = 0;
  for (const auto& parts :
       {std::vector<const void*>{&nan, &one, &two}, std::vector<const void*>{&one, &nan, &two},
        std::vector<const void*>{&one, &two, &nan}}) {
    reduce_parts(parts, &out, 1, DType::f32, ReduceOp::max);
    CHECK(std::isnan(out));
  }
}

namespace {

// Accepts every valid operation.
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

TEST_CASE("an invalid operation is a bug, on every backend alike") {
  AnyGroup group;
  HostStream s;
  float data[8] = {}, more[8] = {};
  CHECK(group.all_reduce(data, 8, DType::f32, ReduceOp::sum, s) == 1);
  const auto refused = [&](const char* reason, const auto& call) {
    CHECK_THROWS_WITH(call(), Catch::Matchers::StartsWith("internal error: rank 1 of 3: ") &&
                                  Catch::Matchers::EndsWith(reason));
  };
  refused("all_reduce of 8 u16: this dtype cannot be reduced",
          [&] { group.all_reduce(data, 8, DType::u16, ReduceOp::sum, s); });
  refused("broadcast of 8 u16: there is no such root",
          [&] { group.broadcast(data, 8, DType::u16, -1, s); });
  refused("send of 8 f32 to rank 1: there is no such peer",
          [&] { group.send(data, 8, DType::f32, 1, s); });
  refused("receive of 8 f32 from rank 3: there is no such peer",
          [&] { group.receive(data, 8, DType::f32, 3, s); });
  refused("all_gather of 72057594037927936 u8: too many elements",
          [&] { group.all_gather(data, more, size_t{1} << 56, DType::u8, s); });
  refused("barrier: a barrier cannot be issued on a stream", [&] { group.issue({}, s); });
}

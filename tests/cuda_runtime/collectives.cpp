// Every operation between ranks on GPUs, through host memory and by NCCL (the stub): what it means,
// and that it takes its place in the order of streams that work as late as they may.
#include "comm/device_group.h"
#include "comm/mesh.h"
#include "comm/ranks.h"
#include "cuda/vendor/device.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/rank_run.h"
#include "tensor/low_precision.h"

using namespace dltrain;
using test::expect;

namespace {

constexpr std::chrono::seconds kCollectivesTimeout{60};

// Values on the GPU that come and go through pinned memory, in stream order.
class Values {
 public:
  Values(Device& device, DType dtype, const std::vector<double>& values)
      : device_(device),
        dtype_(dtype),
        count_(values.size()),
        pinned_(device, bytes(), Memory::pinned_host),
        back_(device, bytes(), Memory::pinned_host),
        memory_(device, bytes()) {
    for (size_t i = 0; i < count_; ++i) write(i, values[i]);
  }
  void* data() const { return memory_.data(); }
  void upload(Stream& stream) { device_.copy(memory_.data(), pinned_.data(), bytes(), stream); }
  std::vector<double> download(Stream& stream) {
    device_.copy(back_.data(), memory_.data(), bytes(), stream);
    stream.synchronize();
    std::vector<double> out;
    for (size_t i = 0; i < count_; ++i) out.push_back(read(i));
    return out;
  }

 private:
  size_t bytes() const { return count_ * dtype_size(dtype_); }
  template <typename T>
  static T& at(const Buffer& buffer, size_t i) {
    return reinterpret_cast<T*>(buffer.data())[i];
  }
  void write(size_t i, double value) {
    if (dtype_ == DType::f32) at<float>(pinned_, i) = static_cast<float>(value);
    if (dtype_ == DType::f64) at<double>(pinned_, i) = value;
    if (dtype_ == DType::i32) at<int32_t>(pinned_, i) = static_cast<int32_t>(value);
    if (dtype_ == DType::bf16) from_f32(static_cast<float>(value), at<Bf16>(pinned_, i));
    if (dtype_ == DType::f16) from_f32(static_cast<float>(value), at<F16>(pinned_, i));
  }
  double read(size_t i) const {
    if (dtype_ == DType::f32) return at<float>(back_, i);
    if (dtype_ == DType::f64) return at<double>(back_, i);
    if (dtype_ == DType::i32) return at<int32_t>(back_, i);
    return dtype_ == DType::bf16 ? to_f32(at<Bf16>(back_, i)) : to_f32(at<F16>(back_, i));
  }

  Device& device_;
  DType dtype_;
  size_t count_;
  Buffer pinned_, back_, memory_;
};

// Returns element i of the input of rank r: small whole numbers, exact in every dtype.
double brought(int rank, size_t i) {
  return static_cast<double>(rank + 1) + static_cast<double>(i % 5);
}
std::vector<double> own(int rank, size_t count) {
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) out.push_back(brought(rank, i));
  return out;
}

void check_operations(Device& device, Collectives& group, DType dtype) {
  const auto stream = device.make_stream();
  const int rank = group.rank(), size = group.size();
  const auto ranks = static_cast<size_t>(size);
  constexpr size_t kCount = 37;
  const std::string name(dtype_name(dtype));
  const auto is = [&](const char* what, const std::vector<double>& found,
                      const std::function<double(size_t)>& wanted) {
    for (size_t i = 0; i < found.size(); ++i) {
      expect(found[i] == wanted(i),
             fmt::format("{} of {}: element {} is {}, not {}", what, name, i, found[i], wanted(i)));
    }
  };
  const auto sum = [&](size_t i) {
    double total = 0;
    for (int r = 0; r < size; ++r) total += brought(r, i);
    return total;
  };

  Values reduced(device, dtype, own(rank, kCount)), most(device, dtype, own(rank, kCount));
  reduced.upload(*stream);
  most.upload(*stream);
  const auto first = group.all_reduce(reduced.data(), kCount, dtype, ReduceOp::sum, *stream);
  const auto second = group.all_reduce(most.data(), kCount, dtype, ReduceOp::max, *stream);
  group.wait(first, *stream);
  group.wait(second, *stream);
  is("all_reduce", reduced.download(*stream), sum);
  is("maximum", most.download(*stream), [&](size_t i) { return brought(size - 1, i); });

  Values whole(device, dtype, own(rank, ranks * kCount)), part(device, dtype, own(rank, kCount));
  whole.upload(*stream);
  group.wait(group.reduce_scatter(whole.data(), part.data(), kCount, dtype, ReduceOp::sum, *stream),
             *stream);
  is("reduce_scatter", part.download(*stream),
     [&](size_t i) { return sum(static_cast<size_t>(rank) * kCount + i); });

  // The own part lies among the gathered ones, as ZeRO's do.
  Values gathered(device, dtype, own(rank, ranks * kCount));
  gathered.upload(*stream);
  const auto* inside = static_cast<std::byte*>(gathered.data()) +
                       static_cast<size_t>(rank) * kCount * dtype_size(dtype);
  group.wait(group.all_gather(inside, gathered.data(), kCount, dtype, *stream), *stream);
  is("all_gather", gathered.download(*stream),
     [&](size_t i) { return brought(static_cast<int>(i / kCount), i); });

  Values outgoing(device, dtype, own(rank, ranks * kCount));
  Values incoming(device, dtype, std::vector<double>(ranks * kCount));
  outgoing.upload(*stream);
  const CollectiveCall exchange{.kind = CollectiveKind::all_to_all,
                                .dtype = dtype,
                                .input = outgoing.data(),
                                .output = incoming.data(),
                                .count = kCount};
  group.wait(group.issue(exchange, *stream), *stream);
  is("all_to_all", incoming.download(*stream), [&](size_t i) {
    return brought(static_cast<int>(i / kCount), static_cast<size_t>(rank) * kCount + i % kCount);
  });

  Values sent(device, dtype, own(rank, kCount));
  sent.upload(*stream);
  group.wait(group.broadcast(sent.data(), kCount, dtype, 1, *stream), *stream);
  is("broadcast", sent.download(*stream), [&](size_t i) { return brought(1, i); });

  group.barrier();
}

// Dtypes that nothing is added up in, too: 64 bytes of each.
void check_moves(Device& device, Collectives& group) {
  const auto stream = device.make_stream();
  const int rank = group.rank(), size = group.size();
  constexpr size_t kCount = 8, kBytes = kCount * sizeof(double);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64,
                            DType::u8, DType::i8, DType::u16, DType::boolean}) {
    const auto check = [&](const char* what, bool good) {
      expect(good, fmt::format("{} of {}", what, dtype_name(dtype)));
    };
    const size_t count = kBytes / dtype_size(dtype);
    Values mine(device, DType::f64, own(rank, kCount)),
        all(device, DType::f64, own(9, kCount * static_cast<size_t>(size)));
    mine.upload(*stream);
    group.wait(group.all_gather(mine.data(), all.data(), count, dtype, *stream), *stream);
    std::vector<double> gathered;
    for (int r = 0; r < size; ++r) {
      for (const double x : own(r, kCount)) gathered.push_back(x);
    }
    check("all_gather", all.download(*stream) == gathered);
    group.wait(group.broadcast(mine.data(), count, dtype, size - 1, *stream), *stream);
    check("broadcast", mine.download(*stream) == own(size - 1, kCount));
    // From the first rank to the last and back.
    const int last = size - 1;
    if (rank == 0) {
      group.send(mine.data(), count, dtype, last, *stream);
      group.wait(group.receive(all.data(), count, dtype, last, *stream), *stream);
    } else if (rank == last) {
      group.receive(all.data(), count, dtype, 0, *stream);
      group.wait(group.send(all.data(), count, dtype, 0, *stream), *stream);
    }
    if (rank == 0 || rank == last) {
      const std::vector<double> passed = all.download(*stream);
      check("send and receive",
            std::equal(passed.begin(), passed.begin() + kCount, own(last, kCount).begin()));
    }
  }
}

void check_all(int ranks, RankBackend backend) {
  const auto results = test::run_ranks(
      ranks,
      [&](test::RankContext& context) {
        fake_cuda::reset(fake_cuda::Order::late);
        fake_cuda::set_devices(ranks);
        const auto host = context.collectives(kCollectivesTimeout);
        const Engine engine = open_backend(backend, "");
        CudaDevice device(context.rank);
        const CollectiveBackendChoice choice = choose_collective_backend(
            *host, engine, device, CollectiveBackendKind::automatic, false);
        expect(choice.vendor == (backend == RankBackend::nccl), choice.warning);
        StreamCollectives group(device, context.rank, ranks);
        join_device_group(group, choice, *host, engine, device);
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
          check_operations(device, group, dtype);
        }
        check_moves(device, group);
      },
      kCollectivesTimeout);
  CHECK(test::all_well(results));
}

}  // namespace

TEST_CASE("through host memory every operation means what it does on CPUs") {
  check_all(2, RankBackend::staged);
  check_all(3, RankBackend::staged);
  check_all(4, RankBackend::staged);
}

// Four ranks as 2 × 2: operations of the whole and of its parts, queued after each other.
static void check_groups(RankBackend backend) {
  const auto results = test::run_ranks(
      4,
      [&](test::RankContext& context) {
        fake_cuda::reset(fake_cuda::Order::late);
        fake_cuda::set_devices(4);
        const auto host = context.collectives(kCollectivesTimeout);
        const Engine engine = open_backend(backend, "");
        CudaDevice device(context.rank);
        const CollectiveBackendChoice choice = choose_collective_backend(
            *host, engine, device, CollectiveBackendKind::automatic, false);
        StreamCollectives world(device, context.rank, 4);
        const MeshGroups groups(world, Mesh({{mesh_axes::kReplica, 2}, {mesh_axes::kShard, 2}}),
                                {mesh_axes::kReplica, mesh_axes::kShard});
        join_device_group(world, choice, *host, engine, device);
        Collectives& shard = groups.along(mesh_axes::kShard);
        Collectives& replica = groups.along(mesh_axes::kReplica);
        expect(shard.size() == 2 && shard.rank() == context.rank % 2, "the place in the shard");
        expect(replica.size() == 2 && replica.rank() == context.rank / 2, "that among replicas");
        check_operations(device, shard, DType::f32);
        check_operations(device, replica, DType::f64);
        check_operations(device, world, DType::f32);
        const auto stream = device.make_stream();
        const double mine = 1 << context.rank;
        Values a(device, DType::f64, {mine}), b(device, DType::f64, {mine}),
            c(device, DType::f64, {mine});
        for (Values* values : {&a, &b, &c}) values->upload(*stream);
        const auto first = shard.all_reduce(a.data(), 1, DType::f64, ReduceOp::sum, *stream);
        const auto second = replica.all_reduce(b.data(), 1, DType::f64, ReduceOp::sum, *stream);
        const auto third = world.all_reduce(c.data(), 1, DType::f64, ReduceOp::sum, *stream);
        world.wait(third, *stream);
        replica.wait(second, *stream);
        shard.wait(first, *stream);
        expect(a.download(*stream)[0] == (context.rank < 2 ? 3 : 12), "the sum over the shard");
        expect(b.download(*stream)[0] == (context.rank % 2 == 0 ? 5 : 10), "that over replicas");
        expect(c.download(*stream)[0] == 15, "that over all");
        world.barrier();
      },
      kCollectivesTimeout);
  CHECK(test::all_well(results));
}

TEST_CASE("through host memory groups of some ranks have operations of their own") {
  check_groups(RankBackend::staged);
}

#if defined(DLTRAIN_STUB_NCCL)
TEST_CASE("by NCCL groups of some ranks have operations of their own") {
  check_groups(RankBackend::nccl);
}

TEST_CASE("by NCCL every operation means what it does on CPUs") {
  check_all(2, RankBackend::nccl);
  check_all(3, RankBackend::nccl);
  check_all(4, RankBackend::nccl);
}
#endif

TEST_CASE("work on a stream waits for an operation only where it is told to") {
  const auto results = test::run_ranks(
      2,
      [](test::RankContext& context) {
        fake_cuda::reset(fake_cuda::Order::late);
        const auto host = context.collectives(kCollectivesTimeout);
        CudaDevice device(0);
        StreamCollectives group(device, context.rank, 2);
        group.join(make_staged_backend(device, context.collectives(kCollectivesTimeout, "staged")),
                   *host);
        const auto stream = device.make_stream();
        Values values(device, DType::f32, {1.0 + context.rank}), other(device, DType::f32, {5});
        values.upload(*stream);
        const auto ticket = group.all_reduce(values.data(), 1, DType::f32, ReduceOp::sum, *stream);
        // The other rank has not begun, so a stream that waited for the sum would never be done.
        if (context.rank == 0) {
          other.upload(*stream);
          expect(other.download(*stream)[0] == 5, "work beside an operation is not done");
          expect(fake_cuda::counts().host_calls == 1, "the operation is not queued");
          host->barrier();
        } else {
          host->barrier();
        }
        group.wait(ticket, *stream);
        expect(values.download(*stream)[0] == 3, "the sum is not there");
        group.barrier();
      },
      kCollectivesTimeout);
  CHECK(test::all_well(results));
}

TEST_CASE("a lost rank is an error of the operation that missed it, and no later one begins") {
  const auto results = test::run_ranks(
      2,
      [](test::RankContext& context) {
        fake_cuda::reset(fake_cuda::Order::late);
        const auto host = context.collectives(kCollectivesTimeout);
        CudaDevice device(0);
        StreamCollectives group(device, context.rank, 2);
        group.join(make_staged_backend(device, context.collectives(kCollectivesTimeout, "staged")),
                   *host);
        if (context.rank == 1) _exit(0);
        const auto stream = device.make_stream();
        Values values(device, DType::f32, std::vector<double>(1000, 1));
        values.upload(*stream);
        group.wait(group.all_reduce(values.data(), 1000, DType::f32, ReduceOp::sum, *stream),
                   *stream);
        stream->synchronize();  // it comes to its end
        for (int call = 0; call < 2; ++call) {
          try {
            if (call == 0) group.check();
            group.all_reduce(values.data(), 1000, DType::f32, ReduceOp::sum, *stream);
            expect(false, "no error");
          } catch (const Error& error) {
            expect(error.code() == ExitCode::rank, "another code");
            expect(std::string(error.what()).find("in all_reduce of 1000 f32") != std::string::npos,
                   error.what());
          }
        }
      },
      kCollectivesTimeout);
  CHECK(test::all_well(results));
}

TEST_CASE("a rank without a GPU among ranks with one is named, by all of them") {
  const auto results = test::run_ranks(
      3,
      [](test::RankContext& context) {
        fake_cuda::reset();
        const auto host = context.collectives(kCollectivesTimeout);
        const Engine& engine = context.rank == 2 ? cpu_engine() : fake_cuda_engine();
        const auto device = engine.open(0);
        choose_collective_backend(*host, engine, *device, CollectiveBackendKind::automatic, false);
      },
      kCollectivesTimeout);
  for (const test::RankResult& result : results) {
    CHECK(result.code == static_cast<int>(ExitCode::device));
    CHECK_THAT(result.message,
               Catch::Matchers::StartsWith("rank 0 computes on cuda and rank 2 on cpu"));
  }
}

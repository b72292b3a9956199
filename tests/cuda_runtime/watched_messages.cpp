// Messages between GPUs that do not come to an end, by NCCL (the stub): the watch names the GPU
// that stalls, and the message, while all hosts wait for their streams.
#include <fstream>

#include <unistd.h>

#include "comm/device_group.h"
#include "comm/ranks.h"
#include "comm/watch.h"
#include "cuda/vendor/device.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/rank_run.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

#if defined(DLTRAIN_STUB_NCCL)
namespace {

constexpr int kRanks = 3;
constexpr std::chrono::milliseconds kWatchedMessagesTimeout{1500};

// Round a ring, step by step; one of the exchanges never ends.
void pass_round(test::RankContext& context, const TemporaryFolder& folder) {
  fake_cuda::reset(fake_cuda::Order::late);
  fake_cuda::set_devices(kRanks);
  StoreClient store = context.client();
  const auto tell = [&](const std::string& message) {
    std::ofstream(folder / std::to_string(context.rank)) << message;
    _exit(static_cast<int>(ExitCode::rank));
  };
  RankWatch watch(store.options(), {.rank = context.rank,
                                    .size = kRanks,
                                    .timeout = kWatchedMessagesTimeout,
                                    .straggler_factor = 0,
                                    .on_lost = tell});
  const auto host = make_gloo(store, {.rank = context.rank, .size = kRanks, .observer = &watch});
  const Engine engine = open_backend(RankBackend::nccl, "");
  CudaDevice device(context.rank);
  StreamCollectives group(device, context.rank, kRanks);
  const CarrierChoice choice = choose_carrier(*host, engine, device, CollectiveChoice::nccl, false);
  join_device_group(group, choice, *host, engine, device,
                    {.make_host_group = {}, .observer = &watch});
  constexpr size_t kCount = 10;
  const Buffer out(device, kCount * sizeof(float)), in(device, kCount * sizeof(float));
  const auto stream = device.make_stream();
  for (int64_t step = 0; step < 100; ++step) {
    watch.at_step_begin(step);
    group.wait(
        group.exchange({out.data(), kCount, (context.rank + 1) % kRanks},
                       {in.data(), kCount, (context.rank + 2) % kRanks}, DType::f32, *stream),
        *stream);
    stream->synchronize();
    watch.at_step_end(step);
  }
}

// What all ranks are told.
std::string told_when(const char* stall) {
  const TemporaryFolder folder;
  setenv("DLTRAIN_STUB_NCCL_STALL", stall, 1);
  const auto results =
      test::run_ranks(kRanks, [&](test::RankContext& context) { pass_round(context, folder); });
  unsetenv("DLTRAIN_STUB_NCCL_STALL");
  std::string told;
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(results[static_cast<size_t>(rank)].code == static_cast<int>(ExitCode::rank));
    std::ifstream file(folder / std::to_string(rank));
    std::string own;
    std::getline(file, own);
    if (rank == 0) told = own;
    CHECK(own == told);
  }
  return told;
}

}  // namespace

TEST_CASE("a GPU that stays in an exchange which the others have done is named") {
  CHECK_THAT(
      told_when("1:5:alone"),
      StartsWith("the GPU of rank 1 (process ") &&
          Contains(" hangs at step 6, in exchange of 10 f32 to rank 2 (message 6) from rank 0 "
                   "(message 6) for ") &&
          Contains("the other ranks are done with it"));
}

TEST_CASE("an exchange between GPUs that nobody comes out of is named") {
  CHECK_THAT(
      told_when("1:5"),
      StartsWith("the GPU of rank 0 (process ") &&
          Contains(" hangs at step 6, in exchange of 10 f32 to rank 1 (message 6) from rank 2 "
                   "(message 6) for ") &&
          Contains("3 GPUs are in it"));
}
#endif

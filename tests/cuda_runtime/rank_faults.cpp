// Whole runs of ranks on GPUs (run/run.h) that go wrong: every rank ends with the right code and
// the same reason, and soon. Each rank is a process with a fake runtime; they meet, are watched and
// part as `dltrain train` has it.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "cuda_runtime/cache_folder.h"
#include "cuda_runtime/rank_process.h"
#include "cuda_runtime/rank_run.h"
#include "data/images.h"
#include "run/run.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr int kRankCode = static_cast<int>(ExitCode::rank);

struct Fault {
  Network network = networks()[0];
  int ranks = 2;
  std::vector<std::string> overrides = {};
  RankBackend backend = RankBackend::staged;
  fake_cuda::Order order = fake_cuda::Order::late;
  double timeout = 60;                                 // parallelism.timeout, s
  std::function<void(int rank)> prepare = [](int) {};  // in the rank, before it opens its device
};

struct End {
  int code = 0;
  std::string message;
  double seconds = 0;  // from the beginning of the training
};

using Clock = std::chrono::steady_clock;

// On the clock of the machine.
double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

ExitCode run_here(const Fault& fault, const test::RankContext& context,
                  const TemporaryFolder& folder) {
  fake_cuda::reset(fault.order);
  fake_cuda::set_devices(context.size);
  const Engine engine = open_backend(fault.backend, "", context.rank);
  Experiment experiment = layout_experiment(fault.network, fault.overrides);
  experiment.parallelism.timeout = fault.timeout;
  const auto tell = [&](const std::string& message) {
    std::ofstream(folder / fmt::format("rank-{}", context.rank)) << now() << '\n' << message;
  };
  fault.prepare(context.rank);
  const std::chrono::milliseconds timeout(static_cast<int64_t>(1000 * fault.timeout));
  return as_watched_rank(context, timeout, tell, [&](const RunRanks& ranks) {
    return run_training(experiment, {.engines = {.cpu = &engine, .reference = &reference_engine()},
                                     .ranks = ranks,
                                     .folder = folder / "run",
                                     .result = {},
                                     .quiet = true,
                                     .log_level = "off"});
  });
}

std::vector<End> ends_of(const Fault& fault) {
  const TemporaryFolder folder;
  const auto results = test::run_ranks(
      fault.ranks,
      [&](test::RankContext& context) {
        const ExitCode code = run_here(fault, context, folder);
        if (code != ExitCode::ok) throw Error(code, "");
      },
      std::chrono::seconds(120));
  std::vector<End> ends;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    End end{.code = results[rank].signalled ? -results[rank].code : results[rank].code,
            .message = {}};
    std::ifstream file(folder / fmt::format("rank-{}", rank));
    file >> end.seconds;
    file.get();
    std::getline(file, end.message);
    UNSCOPED_INFO("rank " << rank << ": " << end.code << " at " << end.seconds << ": "
                          << end.message);
    ends.push_back(end);
  }
  return ends;
}

// How much later than rank `first` the last one ended.
double delay_after(const std::vector<End>& ends, size_t first) {
  double last = 0;
  for (const End& end : ends) last = std::max(last, end.seconds);
  return last - ends[first].seconds;
}

std::vector<RankBackend> backends() {
#if defined(DLTRAIN_STUB_NCCL)
  return {RankBackend::staged, RankBackend::nccl};
#else
  return {RankBackend::staged};
#endif
}

}  // namespace

TEST_CASE("a run of ranks on GPUs goes from its beginning to its end") {
  for (const RankBackend backend : backends()) {
    const auto ends = ends_of({.overrides = {"parallelism.zero_stage=2"}, .backend = backend});
    for (const End& end : ends) CHECK(end.code == 0);
  }
}

TEST_CASE("ranks of shards and of stages share the choices of autotune") {
  const Network lstm{
      "lstm",
      {"model.layers=[{embedding: {embedding_dim: 8}}, {lstm: {hidden_size: 12}}, "
       "{lm_head: {}}]",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 6, samples: 96}"}};
  for (const char* axes : {"tensor: 2, pipeline: 2", "tensor: 2", "pipeline: 2"}) {
    INFO(axes);
    const CacheFolder cache;
    Fault fault{.network = lstm,
                .ranks = 4,
                .overrides = {fmt::format("parallelism={{{}}}", axes), "autotune=quick",
                              "training.micro_batch_size=6"},
                .order = fake_cuda::Order::eager};  // with pipelines (ranks.cpp)
    // Alone they would choose otherwise; of a pipeline only the first stage has the network.
    fault.prepare = [&](int rank) {
      fake_cuda::set_rnn_time(rank % 2 == 0 ? 3.0f : 0.0f);
      ::setenv("DLTRAIN_CACHE_DIR", (cache.folder / fmt::format("{}", rank)).c_str(), 1);
    };
    for (const End& end : ends_of(fault)) CHECK(end.code == 0);
    std::map<std::string, std::set<std::string>> choices;  // of all ranks, by problem
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.folder.path())) {
      if (!entry.is_regular_file()) continue;
      ++files;
      choices[entry.path().filename()].insert(read_file(entry.path(), 1 << 20, ExitCode::storage));
    }
    CHECK(!choices.empty());
    CHECK(files > choices.size());  // several ranks have stored them
    for (const auto& [problem, of_ranks] : choices) CHECK(of_ranks.size() == 1);
  }
}

TEST_CASE("a rank whose GPU fails in a step is named by all, before its memory goes") {
  for (const RankBackend backend : backends()) {
    for (const cudaError_t code : {cudaErrorIllegalAddress, cudaErrorInvalidValue}) {
      INFO("error " << code);
      Fault fault{.ranks = 3, .backend = backend};
      fault.overrides = {"training={global_batch_size: 24, max_steps: 1000}"};
      fault.prepare = [code](int rank) {
        if (rank == 1) fake_cuda::fail_at("cudaGraphLaunch", 20, code);
      };
      const auto ends = ends_of(fault);
      CHECK(ends[1].code == static_cast<int>(ExitCode::device));
      CHECK_THAT(ends[1].message, Contains("launching a CUDA graph"));
      for (const size_t rank : {0, 2}) {
        CHECK(ends[rank].code == kRankCode);
        CHECK_THAT(ends[rank].message, StartsWith("rank 1 (process ") &&
                                           Contains(") failed: CUDA: launching a CUDA graph"));
      }
      CHECK(delay_after(ends, 1) < 3);  // about 0.6 s on cores that nobody else uses
    }
  }
}

TEST_CASE("a sample that cannot be read ends all ranks on GPUs, with its place") {
  const TemporaryFolder pictures;
  const auto image = golden_image("small.png");
  for (const char* label : {"a", "b"}) {
    std::filesystem::create_directories(pictures / label);
    for (int i = 0; i < 12; ++i) {
      pictures.write(fmt::format("{}/{}.png", label, i), std::string(image.begin(), image.end()));
    }
  }
  pictures.write("b/5.png", "hello");
  const Network network{
      "pictures",
      {"model.layers=[flatten, {linear: 2}]",
       fmt::format("data.train={{type: image_folder, path: {}, transforms: [{{resize: 4}}, "
                   "{{center_crop: 4}}]}}",
                   pictures.path().string())}};
  for (const RankBackend backend : backends()) {
    const auto ends = ends_of({.network = network,
                               .overrides = {"training={global_batch_size: 4, max_steps: 100}"},
                               .backend = backend});
    const size_t failed = ends[0].code == kRankCode ? 1 : 0;
    CHECK(ends[failed].code == static_cast<int>(ExitCode::data));
    CHECK_THAT(ends[failed].message, Contains("b/5.png"));
    CHECK(ends[1 - failed].code == kRankCode);
    CHECK_THAT(ends[1 - failed].message,
               StartsWith(fmt::format("rank {} (process ", failed)) && Contains("b/5.png"));
    CHECK(delay_after(ends, failed) < 3);
  }
}

TEST_CASE("a GPU that stops in its computation is named within the timeout and a second") {
  int by_device = 0;
  for (const RankBackend backend : backends()) {
    for (const int graph : {20, 21, 22}) {
      INFO("graph " << graph);
      Fault fault{.overrides = {"training={global_batch_size: 24, max_steps: 1000}"},
                  .backend = backend,
                  .timeout = 1.5};
      fault.prepare = [graph](int rank) {
        if (rank == 1) fake_cuda::stall_graph_at(graph);
      };
      // Behind the last message of a step it is the host of the rank that the others miss first.
      for (const End& end : ends_of(fault)) {
        CHECK(end.code == kRankCode);
        CHECK_THAT(end.message, Contains("rank 1 (process ") && Contains(" hangs at step ") &&
                                    Contains(": rank 0 (process ") &&
                                    Contains(" has waited for it for "));
        CHECK_THAT(end.message, Contains(" in all_reduce ") && Contains("(gradient of "));
        by_device += end.message.starts_with("the GPU of rank 1 ") ? 1 : 0;
      }
    }
  }
  CHECK(by_device >= 2);
}

#if defined(DLTRAIN_STUB_NCCL)
TEST_CASE("a message of NCCL that never ends is named within the timeout and a second") {
  for (const char* stall : {"1:9", "1:9:alone"}) {
    INFO(stall);
    Fault fault{.overrides = {"training={global_batch_size: 24, max_steps: 1000}"},
                .backend = RankBackend::nccl,
                .timeout = 2};
    fault.prepare = [stall](int) { setenv("DLTRAIN_STUB_NCCL_STALL", stall, 1); };
    const auto ends = ends_of(fault);
    const bool alone = std::string(stall).ends_with("alone");
    for (const End& end : ends) {
      CHECK(end.code == kRankCode);
      CHECK_THAT(end.message, StartsWith(alone ? "the GPU of rank 1 (process "
                                               : "the GPU of rank 0 (process ") &&
                                  Contains(" hangs at step ") &&
                                  Contains(", in all_reduce 10 of ") && Contains("(gradient of "));
      if (!alone) CHECK_THAT(end.message, Contains("2 GPUs execute it"));
    }
  }
}
#endif

TEST_CASE("what carries messages is settled before algorithms are timed") {
  Fault fault{.overrides = {"parallelism.collectives=nccl", "autotune=quick"}};
  fault.prepare = [](int) { fake_cuda::fail_at("cudaMalloc", 0, cudaErrorIllegalAddress); };
  const auto ends = ends_of(fault);  // no plan is made, and nothing is allocated for timing
  CHECK(ends[0].code == static_cast<int>(ExitCode::usage));
  CHECK_THAT(ends[0].message, StartsWith("parallelism.collectives: nccl: "));
  CHECK(ends[1].code == kRankCode);  // told once, by rank 0
}

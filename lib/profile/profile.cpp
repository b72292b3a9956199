#include "profile/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owned_files.h"
#include "checkpoint/run_folder.h"
#include "compile/alignment.h"
#include "profile/trace.h"
#include "run/device_monitor.h"
#include "run/device_ranks.h"
#include "run/trainer.h"
#include "telemetry/chrome_trace.h"

namespace dltrain {
namespace {

constexpr const char *kTraceFile = "trace.json", *kRooflineFile = "roofline.svg";

using ProfileClock = std::chrono::steady_clock;

// Measures the load by other processes on the CPUs that this process may use. 1 means one CPU that
// is always busy.
class OtherLoad {
 public:
  double cpus() const {
    const double seconds = 1e-9 * static_cast<double>(profiler_clock() - from_);
    return seconds > 0 ? std::max(0.0, (busy() - own() - before_) / seconds) : 0;
  }

 private:
  static double own() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  // Seconds in which these CPUs were not idle: all columns of /proc/stat but idle and iowait.
  static double busy() {
    std::ifstream stat("/proc/stat");
    const std::vector<int> own = bound_cpus();
    double ticks = 0;
    for (std::string line; std::getline(stat, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      if (!name.starts_with("cpu") || name == "cpu") continue;
      if (std::ranges::find(own, std::atoi(name.c_str() + 3)) == own.end()) continue;
      double value = 0;
      for (int column = 0; column < 8 && words >> value; ++column) {
        ticks += column == 3 || column == 4 ? 0 : value;
      }
    }
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  int64_t from_ = profiler_clock();
  double before_ = busy() - own();
};

// Exchanges the results between the ranks at the end. With one rank, `group` is nullptr.
class Ranks {
 public:
  Ranks(Collectives* group, Device& device) : group_(group), stream_(device.make_stream()) {}

  int64_t from_first(int64_t value) {
    if (group_ == nullptr) return value;
    group_->wait(group_->broadcast(&value, 1, DType::i64, 0, *stream_), *stream_);
    return value;
  }

  // Returns the offset of this rank's clock to rank 0's. Offsets below the duration of a barrier
  // count as 0: ranks on one machine have the same clock.
  int64_t clock_offset() {
    constexpr int64_t kSameMachine = 10'000'000;  // ns
    if (group_ == nullptr) return 0;
    group_->barrier();
    const int64_t own = profiler_clock(), difference = own - from_first(own);
    return std::abs(difference) < kSameMachine ? 0 : difference;
  }

  // Gathers the texts of all ranks, in their order.
  std::vector<std::string> gather(const std::string& text) {
    if (group_ == nullptr) return {text};
    const auto ranks = static_cast<size_t>(group_->size());
    const auto own = static_cast<int64_t>(text.size());
    std::vector<int64_t> sizes(ranks);
    group_->wait(group_->all_gather(&own, sizes.data(), 1, DType::i64, *stream_), *stream_);
    const auto most = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::vector<uint8_t> mine(std::max<size_t>(most, 1)), all(mine.size() * ranks);
    std::memcpy(mine.data(), text.data(), text.size());
    group_->wait(group_->all_gather(mine.data(), all.data(), mine.size(), DType::u8, *stream_),
                 *stream_);
    std::vector<std::string> out;
    for (size_t rank = 0; rank < ranks; ++rank) {
      out.emplace_back(reinterpret_cast<const char*>(all.data() + rank * mine.size()),
                       static_cast<size_t>(sizes[rank]));
    }
    return out;
  }

  std::vector<RankShares> gather(const RankShares& own) {
    if (group_ == nullptr) return {};
    std::vector<double> values{own.step_seconds};
    values.insert(values.end(), own.seconds.begin(), own.seconds.end());
    std::vector<double> all(values.size() * static_cast<size_t>(group_->size()));
    group_->wait(group_->all_gather(values.data(), all.data(), values.size(), DType::f64, *stream_),
                 *stream_);
    std::vector<RankShares> out;
    for (auto at = all.begin(); at != all.end(); at += static_cast<ptrdiff_t>(values.size())) {
      out.push_back({*at, {at + 1, at + static_cast<ptrdiff_t>(values.size())}});
    }
    return out;
  }

 private:
  Collectives* group_;
  std::unique_ptr<Stream> stream_;
};

// Reads the power of a GPU and why it is slowed down; does nothing for devices without a sensor.
class PowerMeter {
 public:
  explicit PowerMeter(Device& device) {
    constexpr auto kEvery = std::chrono::milliseconds(20);
    std::string why;
    if (auto sensor = device.make_sensor(why))
      monitor_.emplace(std::move(sensor), "", nullptr, kEvery);
  }
  void take() {
    const auto reading = monitor_ ? monitor_->latest() : std::nullopt;
    if (!reading) return;
    if (!std::isnan(reading->power_watts)) {
      sum_ += reading->power_watts;
      ++count_;
    }
    if (!reading->throttled.empty()) throttled_ = reading->throttled;
  }
  void report(ProfileReport& out) const {
    out.watts = count_ > 0 ? sum_ / count_ : 0;
    out.throttled = throttled_;
  }

 private:
  std::optional<DeviceMonitor> monitor_;
  double sum_ = 0, count_ = 0;
  std::string throttled_;
};

// Runs the steps; sets the median time of those without observation, and the power.
Recording run_steps(Session& session, const ProfileOptions& options, ProfileReport& report) {
  Recorder recorder(*session.executor, options.steps, session.batch.micro_steps);
  std::vector<double> seconds;
  ProfileClock::time_point last;
  PowerMeter power(session.executor->device());
  TrainEvents events;
  events.on_progress = [&](int64_t done) {
    const ProfileClock::time_point now = ProfileClock::now();
    if (done > options.warmup && done <= options.warmup + options.steps) {
      seconds.push_back(std::chrono::duration<double>(now - last).count());
      power.take();
    }
    last = now;
  };
  train(session, events,
        {.run_folder = {},
         .resolved_config = {},
         .handle_signals = false,
         .steps = options.warmup + 2 * options.steps,
         .observer = &recorder,
         .observed_from = options.warmup + options.steps});
  power.report(report);
  if (seconds.empty()) return recorder.take();  // only the rank that reports progress measures
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  report.plain_step_seconds = *middle;
  return recorder.take();
}

Session open(Experiment& experiment, const ProfileOptions& options, RankAgreement* agreement,
             SelectedDevice chosen) {
  try {
    return open_session(experiment,
                        {.engines = options.engines,
                         .ranks = options.ranks,
                         .agreement = agreement,
                         .evaluation = false},
                        std::move(chosen));
  } catch (const std::exception& error) {
    if (agreement != nullptr) agreement->abort(error.what());  // other ranks may wait for a choice
    throw;
  }
}

RankShares shares_of(const Profile& profile) {
  RankShares out{.step_seconds = profile.step_seconds};
  for (const StepShare& share : profile.shares) out.seconds.push_back(share.seconds);
  return out;
}

}  // namespace

std::optional<ProfileReport> profile_training(Experiment& experiment,
                                              const ProfileOptions& options) {
  experiment.training.max_time.reset();
  SelectedDevice chosen =
      choose_device(experiment.device, options.engines, options.ranks.local_rank);
  const CollectiveBackendChoice choice =
      choose_collective_backend(experiment, options.ranks, chosen);
  const auto agreement = agreement_of(experiment, options.ranks);
  Session session = open(experiment, options, agreement.get(), std::move(chosen));
  join_ranks(session, choice);
  session.max_steps = std::max(session.max_steps, options.warmup + 2 * options.steps);
  const auto folder =
      options.folder.empty() ? std::filesystem::path("runs") / experiment.name : options.folder;
  if (options.ranks.is_leader()) {
    mark_run_folder(folder);
    claim_files(folder, {kTraceFile, kRooflineFile});
  }
  start_session(session);
  Device& device = session.executor->device();
  ProfileReport report{.name = experiment.name,
                       .note = session.device_note,
                       .device = device.properties().name,
                       .backend = device.properties().backend,
                       .threads = device.properties().on_host ? omp_get_max_threads() : 0,
                       .warmup = options.warmup,
                       .samples_per_step = session.batch.global_batch};
  const OtherLoad load;
  report.limits = find_limits(session.executor->engine(), device, experiment.precision.compute,
                              experiment.precision.matmul == ProductMath::tf32);
  report.data_workers = std::max(1, loader_workers(session, *session.data.train));
  report.cores = bound_cpu_count();
  if (!device.properties().on_host) {
    report.misalignment =
        describe_misalignment(session.executor->training().graph, experiment.precision.compute);
  }
  const Recording recording = run_steps(session, options, report);
  report.other_load = load.cpus();
  report.profile = summarize(recording, report.limits);
  report.method = recording.method;
  report.arithmetic =
      dtype_name(report.limits.flops_low > 0 ? experiment.precision.compute : DType::f32);
  report.model_flops = session.step_model_flops();

  Ranks ranks(options.ranks.collectives, *options.engines.cpu->open(0));
  report.ranks = ranks.gather(shares_of(report.profile));
  const int64_t offset = ranks.clock_offset();
  const int64_t origin = ranks.from_first(recording.parts.front().begin) + offset;
  const std::vector<std::string> events =
      ranks.gather(trace_events(recording, report.limits, options.ranks.rank, origin));
  if (!options.ranks.is_leader()) return std::nullopt;
  report.trace = folder / kTraceFile;
  if (const std::string svg = roofline_svg(report); !svg.empty()) {
    write_file_atomically(folder / kRooflineFile, svg);
  }
  write_chrome_trace(report.trace, events);
  return report;
}

}  // namespace dltrain

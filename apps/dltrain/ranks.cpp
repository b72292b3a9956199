#include "dltrain/ranks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <unistd.h>

#include "base/cpus.h"
#include "base/log.h"
#include "base/stop.h"
#include "comm/socket.h"
#include "cpu/engine.h"
#include "device/engine.h"
#include "launch/options.h"
#include "runtime/remote_error.h"

namespace dltrain {
namespace {

constexpr std::chrono::milliseconds kSignalDelay{500}, kPoll{10};

// Returns the arguments of each rank: those of this process without --nproc-per-node.
std::vector<std::string> arguments_of_ranks(const std::vector<std::string>& all) {
  std::vector<std::string> out;
  for (size_t i = 0; i < all.size(); ++i) {
    std::string name = all[i].substr(0, all[i].find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (name != "--nproc-per-node") {
      out.push_back(all[i]);
    } else if (name.size() == all[i].size()) {
      ++i;  // the number
    }
  }
  return out;
}

// Returns true if `dltrain launch` prints the reason why the ranks end: which one was lost, or that
// they were stopped before there was anything to save. A rank prints only its own errors.
// `watched`: the launcher can know the reason, which it cannot if the store is lost.
bool launcher_reports(const RankEnvironment& environment, ExitCode code, bool watched) {
  if (!environment.store_served) return false;
  return (code == ExitCode::rank && watched) || code == ExitCode::stopped;
}

// Returns true if this rank was asked to stop. Before the first step the other ranks may end
// because of the same request, which may reach this rank a moment after it has noticed their loss.
bool is_asked_to_stop(const RankEnvironment& environment) {
  const auto end =
      Clock::now() + (environment.store_served ? std::chrono::milliseconds(0) : kSignalDelay);
  while (stop_signal() == 0 && Clock::now() < end) std::this_thread::sleep_for(kPoll);
  return stop_signal() != 0;
}

// Connects to the other ranks. Errors caused by a request to stop are Error(stopped).
World join(const RankEnvironment& environment, Device& device, const WorldOptions& options) {
  try {
    return join_world(environment, device, options);
  } catch (const Error& error) {
    const bool stopped = error.code() == ExitCode::stopped ||
                         (error.code() == ExitCode::rank && is_asked_to_stop(environment));
    if (!stopped) throw;
    fail(ExitCode::stopped, "stopped by signal {} before all ranks had connected", stop_signal());
  }
}

ExitCode join_and_run(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                      const std::function<ExitCode(const World& world)>& body,
                      std::atomic<bool>& watched) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  };
  // Other launchers may leave all cores to each rank.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    set_cpu_threads(cpu_share(environment.local_world_size));
  }
  if (environment.rank == 0 && !environment.store_served && environment.secret.empty() &&
      !is_loopback(environment.master_address)) {
    print_message(
        fmt::format("dltrain: warning: DLTRAIN_STORE_SECRET is not set: anybody who reaches {} can "
                    "join or end this run; set it to the same text on all ranks",
                    endpoint_text(environment.master_address, environment.master_port)));
  }
  const auto host = engines().cpu->open(0);
  // Set when all have connected; the watch's thread reads it.
  std::atomic<RankWatch*> watch = nullptr;
  const World world = join(
      environment, *host,
      {.timeout = milliseconds(parallelism.timeout),
       .connect_timeout = milliseconds(parallelism.join_timeout),
       .interrupted = [] { return stop_signal() != 0; },
       .on_refused =
           [](const std::string& address) {
             print_message("dltrain: a rank at " + address +
                           " was refused: it has another secret (DLTRAIN_STORE_SECRET)");
           },
       .on_watched = [&watched] { watched = true; },
       .watch = {.straggler_factor = parallelism.straggler_factor,
                 .on_lost =
                     [&](const std::string& message) {
                       if ((watch == nullptr || watch.load()->step() < 0) &&
                           is_asked_to_stop(environment)) {
                         _exit(static_cast<int>(ExitCode::stopped));
                       }
                       // The training thread hangs, so the process cannot end in order.
                       if (!launcher_reports(environment, ExitCode::rank, watched)) {
                         print_message("dltrain: error: " + message);
                       }
                       std::fflush(nullptr);
                       _exit(static_cast<int>(ExitCode::rank));
                     },
                 .on_straggler = [](const std::string& message) { log_warning("{}", message); },
                 .on_store_lost = [&watched] { watched = false; }}});
  watch = world.watch.get();
  const auto stopped = [&](ExitCode code) {
    return code == ExitCode::rank && world.watch->step() < 0 && is_asked_to_stop(environment);
  };
  try {
    const ExitCode code = body(world);
    if (stopped(code)) return ExitCode::stopped;
    // Written before the barrier, so that the launchers of all nodes read it.
    const bool told = code == ExitCode::stopped && world.watch->step() >= 0;
    if (told && environment.rank == 0) world.watch->stop_logged();
    world.watch->finish();
    const bool whole = code == ExitCode::ok || code == ExitCode::stopped;
    if (whole) world.collectives->barrier();
    return code;
  } catch (const RemoteError& error) {
    if (stopped(error.code())) return ExitCode::stopped;
    world.watch->finish();  // the rank with the error reports it
    throw;
  } catch (const Error& error) {
    if (stopped(error.code())) {
      fail(ExitCode::stopped, "stopped by signal {} before the first step", stop_signal());
    }
    // Has no effect if there is a reported failure already.
    world.watch->report(error.what(), error.code());
    throw;
  }
}

}  // namespace

ExitCode run_as_rank(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                     const std::function<ExitCode(const World& world)>& body) {
  std::atomic<bool> watched = false;
  try {
    return join_and_run(environment, parallelism, body, watched);
  } catch (const RemoteError& error) {
    if (environment.store_served) return ExitCode::rank;  // the launcher reports the other rank
    print_message(fmt::format("dltrain: rank {} has failed and prints the reason", error.rank()));
    return error.remote_code();
  } catch (const Error& error) {
    if (!launcher_reports(environment, error.code(), watched)) throw;
    return error.code();
  }
}

int parse_ranks(const std::string& text) {
  return parse_processes(text, [] {
    std::string why;
    const Engine* cuda = load_engine_plugin("cuda", why);
    return cuda != nullptr ? cuda->device_count() : 0;
  });
}

void refuse_ranks_of_ranks(int ranks) {
  const std::string launcher = rank_environment(process_environment()).launcher;
  if (launcher.empty()) return;
  fail(ExitCode::usage,
       "--nproc-per-node {}: this process is already a rank, started by {}, and cannot start ranks",
       ranks, launcher);
}

void refuse_pipes(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    const fs::file_status status = fs::status(argument, ignored);
    if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) continue;
    fail(ExitCode::usage,
         "{}: every rank reads the configuration, so it must be a file, not a pipe", argument);
  }
}

int launch_ranks(int ranks, const LaunchedRun& run) {
  refuse_pipes(command_line());
  return launch({.processes = ranks, .run = run}, arguments_of_ranks(command_line()));
}

}  // namespace dltrain

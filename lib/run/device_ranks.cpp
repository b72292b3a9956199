#include "run/device_ranks.h"

#include "base/error.h"
#include "base/host_name.h"
#include "comm/watch.h"
#include "runtime/remote_error.h"

namespace dltrain {

std::unique_ptr<RankAgreement> agreement_of(const Experiment& experiment, const RunRanks& ranks) {
  if (ranks.store == nullptr) return nullptr;
  const double seconds = experiment.parallelism.timeout;
  return std::make_unique<RankAgreement>(
      *ranks.store, ranks.rank, std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)));
}

void check_same_on_ranks(const SessionOptions& options, const std::string& what,
                         const std::string& own) {
  if (options.agree(what, [&] { return own; }) == own) return;
  fail(ExitCode::data,
       "{} on rank {} ({}) differs from rank 0's; files of the same name on two nodes are probably "
       "not equal",
       what, options.ranks.rank, host_name());
}

CollectiveBackendChoice choose_collective_backend(const Experiment& experiment,
                                                  const RunRanks& ranks,
                                                  const SelectedDevice& chosen) {
  if (ranks.collectives == nullptr) return {};
  return choose_collective_backend(*ranks.collectives, *chosen.engine, *chosen.device,
                                   experiment.parallelism.collectives,
                                   experiment.training.reduction == Reduction::fixed);
}

void join_ranks(Session& session, const CollectiveBackendChoice& choice) {
  if (!choice.on_gpus) return;
  Executor& executor = *session.executor;
  const RunRanks& ranks = session.options.ranks;
  join_device_group(*executor.device_group(), choice, *ranks.collectives, executor.engine(),
                    executor.device(), ranks.watch);
  session.device_note = choice.note;
  if (!choice.warning.empty()) executor.device().notices().add(choice.warning, choice.warning);
}

void abort_ranks(const RunRanks& ranks, const Session& session,
                 const std::exception& error) noexcept {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool told = known != nullptr && known->code() == ExitCode::rank;
  const bool elsewhere = dynamic_cast<const RemoteError*>(&error) != nullptr;
  StreamCollectives* group = session.executor ? session.executor->device_group() : nullptr;
  try {
    if (ranks.watch != nullptr && elsewhere) ranks.watch->finish();
    if (ranks.watch != nullptr && !told) ranks.watch->report(error.what(), exit_code_of(error));
    if (group == nullptr) return;
    group->abort();
    ranks.collectives->abort();
  } catch (const std::exception&) {  // the first error is the one to tell
  }
}

}  // namespace dltrain

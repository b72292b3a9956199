// The group of ranks on GPUs, agreement of ranks, and the end of a rank that fails. On CPUs and
// with one rank there is no such group.
#pragma once

#include <exception>
#include <memory>

#include "comm/agreement.h"
#include "comm/device_group.h"
#include "run/session.h"

namespace dltrain {

// The agreement by which one rank chooses for all (algorithms, checkpoints); nullptr with one rank.
// For SessionOptions::agreement.
std::unique_ptr<RankAgreement> agreement_of(const Experiment& experiment, const RunRanks& ranks);

// Throws Error(data) if `own`, a hash of what this rank has read, is another than that of rank 0:
// copies of files on nodes may differ. All ranks must call it.
void check_same_on_ranks(const SessionOptions& options, const std::string& what,
                         const std::string& own);

// Lets the ranks choose a backend by their devices (comm/device_group.h), before plans are
// prepared. All ranks must call it; an error is thrown on all ranks.
CollectiveBackendChoice choose_collective_backend(const Experiment& experiment,
                                                  const RunRanks& ranks,
                                                  const SelectedDevice& chosen);

// Joins the session's group over GPU memory and stores the messages for the log in the session. All
// ranks must call it. Throws Error(device) or Error(rank) on some ranks; the others learn of it
// from the watch.
void join_ranks(Session& session, const CollectiveBackendChoice& choice);

// Called when this rank fails, before the session (as far as it was opened) is destroyed. Reports
// the error to the other ranks, unless it was already reported or another rank reports it; then
// aborts the transfers between GPUs, so that no destructor waits for them. Never throws.
void abort_ranks(const RunRanks& ranks, const Session& session,
                 const std::exception& error) noexcept;

}  // namespace dltrain

// How ranks on GPUs meet, which does nothing on CPUs and alone; how a rank that fails parts from
// the others; and what all ranks agree on.
#pragma once

#include <exception>
#include <memory>

#include "comm/agreement.h"
#include "comm/device_group.h"
#include "train/session.h"

namespace dltrain {

// What rank 0 chooses for all (algorithms, checkpoints that are found); nullptr alone. For
// SessionOptions::agree; it outlives the session.
std::unique_ptr<RankAgreement> agreement_of(const Experiment& experiment, const RunRanks& ranks);

// Asks all ranks what they compute on (comm/device_group.h): before plans are made, for which rank
// 0 may have to choose algorithms. All must call it, and throw alike.
CarrierChoice choose_carrier(const Experiment& experiment, const RunRanks& ranks,
                             const ChosenDevice& chosen);

// Joins the session's group over the memory of GPUs as chosen, and keeps what the log says of it in
// the session. All ranks must call it. Throws Error(device) or Error(rank), not on all ranks alike:
// the others learn of it from the watch.
void join_ranks(Session& session, const CarrierChoice& choice);

// This rank fails: called where the error is caught, while everything still lives. The others learn
// why first, whatever destructors wait for (but of a rank that was lost, which was told already, or
// of a mistake that another one tells); then messages under way between GPUs end, so that no
// destructor waits for them. Never throws.
void give_up(const Session& session, const std::exception& error) noexcept;

}  // namespace dltrain

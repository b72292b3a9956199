// Ranks on GPUs: how they meet, and how one that fails parts from the others. On CPUs and alone all
// of this does nothing.
#pragma once

#include <exception>

#include "comm/device_group.h"
#include "train/session.h"

namespace dltrain {

// Asks all ranks what they compute on (comm/device_group.h): before plans are made, for which rank
// 0 may have to choose algorithms. All must call it, and throw alike.
CarrierChoice choose_carrier(const Experiment& experiment, const RunRanks& ranks,
                             const ChosenDevice& chosen);

// Joins the session's group over the memory of GPUs as chosen, and keeps what the log says of it in
// the session. All ranks must call it. Throws Error(device) or Error(rank), not on all ranks alike:
// the others learn of it from the watch.
void join_ranks(Session& session, const CarrierChoice& choice);

// This rank fails: called where the error is caught, while everything still lives. The others learn
// why first (but of a rank that was lost, which was told already); then messages under way end, so
// that no destructor waits for them. Never throws.
void give_up(const Session& session, const std::exception& error) noexcept;

}  // namespace dltrain

// These functions tell, before anything is allocated, whether a run fits the memory that it may
// use, which settings need less, and which micro-batches fit. All numbers are those of plans.
#pragma once

#include <string>
#include <vector>

#include "base/memory.h"
#include "run/session.h"

namespace dltrain {

// Bytes of the host memory of a run that the arena does not contain, without libraries and what the
// data already has.
struct HostMemory {
  size_t batches = 0;     // prefetched for training
  size_t evaluation = 0;  // of evaluations, with evaluation.predictions
  size_t samples = 0;     // texts of the section `generation`, in the memory of the device
  size_t messages = 0;    // receive buffers of collectives of ranks on CPUs
  size_t snapshot = 0;    // of checkpoints that are written while training continues
  size_t files = 0;       // copies of a tensor in f32: for files, histograms, initialization
  size_t vectors = 0;     // while optimizer.galore computes singular vectors
  size_t total() const {
    return batches + evaluation + samples + messages + snapshot + files + vectors;
  }
};
HostMemory host_memory(const Session& session);

// Returns whether checkpoints copy the state, so that training continues while they are written:
// checkpoint.async for a run that saves before its end. (One that saves on SIGUSR1 only waits.)
bool saves_in_background(const Session& session);

struct MemoryFit {
  std::string owner;            // of the limit: "this machine has"
  uint64_t needs = 0, has = 0;  // bytes of all ranks that share the limit
  std::string ranks = {};       // " on 4 ranks" where several share it
  bool fits() const { return needs <= has; }
  // "at most 58.6 MiB needed, this machine has 19.30 GiB", or "does not fit: needs 110.20 GiB, …"
  std::string text() const;
};

// Returns the limits of the memory of the session's device as they are now, or what memory.budget
// gives. A GPU that is described has its own memory only.
std::vector<MemoryLimit> limits_of(const Session& session);

// Compares with the limit that is nearest. Counted are the memory that this process has now, the
// arena, HostMemory, and an allowance for libraries and threads; the ranks of one machine share its
// memory. In a run of several ranks all of them must call it; the ranks of a plan need not exist.
MemoryFit memory_fit(const Session& session, const std::vector<MemoryLimit>& limits);

// Returns fit.text(), and if it does not fit a line for each setting that needs less, all of which
// have been planned: recomputation, a smaller micro-batch, checkpoint.async, bf16, these together,
// ZeRO on more ranks. Plans change the session's experiment and restore it.
std::string memory_verdict(const Session& session, const MemoryFit& fit,
                           const std::vector<MemoryLimit>& limits);

// Returns the divisors of n that are at most `most`, ascending.
std::vector<int64_t> divisors(int64_t n, int64_t most);

// Returns the micro-batches that divide a rank's share of the global batch, ascending.
std::vector<int64_t> possible_micro_batches(const Experiment& experiment, int world);

// Returns why results depend on the micro-batch (batch norm, losses of routers, capacities of
// experts); empty: they do not, but for rounding.
std::string micro_batch_matters(const Session& session);

// Returns the largest micro-batch that fits, for training.micro_batch_size: auto; if none does, the
// one that needs the least. Plans some. Opens options.data. Throws ConfigError where results depend
// on it.
int64_t choose_micro_batch(Experiment& experiment, SessionOptions& options);

// Returns the recomputation with the shortest estimated time with which the run fits, for
// memory.recompute: auto; if none fits, that with the least memory. Plans up to twelve. Opens
// options.data.
RecomputeChoice choose_recompute(Experiment& experiment, SessionOptions& options);

// Opens rank `rank` of `world` ranks, which need not exist, with the other options of a session.
Session open_planned_rank(Experiment& experiment, SessionOptions options, int world, int rank);

}  // namespace dltrain

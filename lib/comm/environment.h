// Reads the rank of this process from the variables that its launcher has set.
//
// Supported launchers; the first complete set is used (inner launchers before outer ones):
//   torchrun, dltrain launch   RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE]
//                              MASTER_ADDR MASTER_PORT
//   Open MPI                   OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   MVAPICH                    MV2_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   MPICH, Intel MPI           PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]
//                              (srun --mpi=pmi2 sets these too; then Slurm's are used)
//   Slurm                      SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID
//                              SLURM_STEP_TASKS_PER_NODE,
//                              only in a task of a job step (srun): the shells of batch scripts and
//                              of salloc have such variables too, but are no ranks
// MASTER_ADDR and MASTER_PORT are used with every launcher. Their defaults are 127.0.0.1 and 29500
// if all ranks are on one host; with several hosts MASTER_ADDR is required (with Slurm: the first
// of its nodes is the default). An incomplete or contradictory set is Error(usage) naming the
// variables.
#pragma once

#include <map>
#include <string>

namespace dltrain {

using Environment = std::map<std::string, std::string>;

// Returns the variables of this process.
Environment process_environment();

struct RankEnvironment {
  std::string launcher = {};  // "torchrun", "dltrain", "mpirun", …; empty: there is no launcher
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // on this host
  int local_world_size = 1;  // ranks on this host
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
  // The launcher already serves the store at master_address:master_port; otherwise rank 0 does.
  bool store_served = false;
  std::string run_id = {};  // unique for each run and each restart; part of the store's keys
  std::string secret = {};  // of the store
  int node = 0, nodes = 1;  // of the launcher that starts this rank; only for variables_for()
  // This host's address as the other hosts reach it; empty: that of the connection to the store.
  std::string host_address = {};
  // Restarts of the run so far, and allowed (only for variables_for()).
  int restarts = 0, max_restarts = 0;
  // An earlier attempt of this launch has created the run folder.
  bool run_has_begun = false;

  bool distributed() const { return world_size > 1; }
  // A launcher that serves a store watches even a single rank through it.
  bool has_store() const { return distributed() || store_served; }
  // The prefix of the keys of this attempt's ranks in the store.
  std::string store_prefix() const { return run_id + "/"; }
};

// A pure function of the variables.
RankEnvironment rank_environment(const Environment& environment);

// The variables that `dltrain launch` sets for a rank: torchrun's and its own. rank_environment()
// reads them back, with `restarts` appended to the run_id.
Environment variables_for(const RankEnvironment& rank);

// Returns the variables without those that tell a process its rank, for a command that is no rank.
Environment without_rank(Environment environment);

// Returns the first host of a Slurm node list: "gpu03" of "gpu[03-07,11],x1". Empty if malformed.
std::string first_slurm_host(const std::string& list);

}  // namespace dltrain

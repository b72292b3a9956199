// Which rank this process is, as its launcher says in the environment.
//
// Understood, the first complete one wins (an inner launcher is listed before an outer one):
//   torchrun, dltrain launch   RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE]
//                              MASTER_ADDR MASTER_PORT
//   Open MPI                   OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   MVAPICH                    MV2_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   MPICH, Intel MPI           PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]
//                              (srun --mpi=pmi2 sets the same as Slurm's: then Slurm's count)
//   Slurm                      SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID
//                              SLURM_STEP_TASKS_PER_NODE,
//                              in a task of a job step (srun) only: a batch script's shell and
//                              salloc's have such variables too, but are no ranks
// MASTER_ADDR and MASTER_PORT are respected with every launcher; without them ranks that are all on
// one host use 127.0.0.1 and port 29500, more hosts need MASTER_ADDR (Slurm: the first of its
// nodes). An incomplete or contradictory set is Error(usage) naming the variables.
#pragma once

#include <map>
#include <string>

namespace dltrain {

using Environment = std::map<std::string, std::string>;

// This process's variables.
Environment process_environment();

struct RankEnvironment {
  std::string launcher;  // "torchrun", "dltrain", "mpirun", …; empty: this process is alone
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // on this host
  int local_world_size = 1;  // ranks on this host
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
  // The launcher already serves the store at master_address:master_port; otherwise rank 0 does.
  bool store_served = false;
  std::string run_id;       // part of the store's keys: unique for each run and each restart of it
  std::string secret;       // of the store
  int node = 0, nodes = 1;  // which launcher started this rank; as far as it says so
  // This host's address as the other hosts see it; empty: the one that leads to the store.
  std::string host_address;
  int restarts = 0, max_restarts = 0;  // this is the so manieth restart of the run
  // An earlier attempt of the same launch has begun the run in its run folder.
  bool run_has_begun = false;

  bool distributed() const { return world_size > 1; }
  // Put before the keys of this attempt's ranks in the store.
  std::string store_prefix() const { return run_id + "/"; }
};

// A pure function of the variables.
RankEnvironment rank_environment(const Environment& environment);

// What a launcher of ours sets for one rank, torchrun's variables and our own; rank_environment()
// reads it back, with `restarts` behind the run_id.
Environment variables_for(const RankEnvironment& rank);

// The first host of a Slurm node list: "gpu[03-07,11],x1" is "gpu03". Empty when it is malformed.
std::string first_slurm_host(const std::string& list);

}  // namespace dltrain

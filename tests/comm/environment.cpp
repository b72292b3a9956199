#include "comm/environment.h"

#include "base/error.h"
#include "catch.h"

using namespace dltrain;

namespace {

// The message of the Error(usage) that reading these variables ends in.
std::string refusal(const Environment& variables) {
  try {
    rank_environment(variables);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::usage);
    return e.what();
  }
  return "accepted";
}

bool names(const std::string& message, const std::string& variable) {
  return message.find(variable) != std::string::npos;
}

const Environment kTorchrun{{"RANK", "5"},          {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "n01"}, {"MASTER_PORT", "1234"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment kSlurm{{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "3"},
                         {"SLURM_PROCID", "4"},  {"SLURM_STEP_NUM_TASKS", "5"},
                         {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_NODEID", "2"},  {"SLURM_STEP_NODELIST", "gpu[07-08,11]"},
                         {"SLURM_NTASKS", "99"}};

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

}  // namespace

TEST_CASE("without a launcher's variables the process is alone") {
  const RankEnvironment e =
      rank_environment({{"PATH", "/bin"}, {"MASTER_ADDR", "x"}, {"RANK", ""}});
  CHECK_FALSE(e.distributed());
  CHECK(e.launcher.empty());
  CHECK(e.rank == 0);
}

TEST_CASE("torchrun's variables are understood") {
  const RankEnvironment e = rank_environment(kTorchrun);
  CHECK(e.launcher == "torchrun");
  CHECK(e.rank == 5);
  CHECK(e.world_size == 8);
  CHECK(e.local_rank == 1);
  CHECK(e.local_world_size == 4);
  CHECK(e.master_address == "n01");
  CHECK(e.master_port == 1234);
  CHECK_FALSE(e.store_served);
  // Its own store sits on MASTER_PORT; a restart must not read the old run's keys.
  const RankEnvironment elastic =
      rank_environment(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                        {"TORCHELASTIC_RUN_ID", "job"},
                                        {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  CHECK(elastic.master_port == 1235);
  CHECK(elastic.run_id == "job.2");
  // Kubernetes operators give no local numbers.
  const RankEnvironment bare =
      rank_environment(without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"));
  CHECK(bare.local_world_size == 1);
}

TEST_CASE("what our launcher sets is read back") {
  RankEnvironment e;
  e.rank = e.local_rank = 2;
  e.world_size = e.local_world_size = 3;
  e.master_port = 4567;
  e.store_served = true;
  e.run_id = "run";
  e.secret = "sesame";
  e.node = 1;
  e.nodes = 2;
  e.restarts = 3;
  e.max_restarts = 4;
  e.host_address = "10.0.0.7";
  e.run_has_begun = true;
  const Environment variables = variables_for(e);
  CHECK(variables.at("TORCHELASTIC_RUN_ID") == "run");
  CHECK(variables.at("TORCHELASTIC_MAX_RESTARTS") == "4");
  CHECK(variables.at("GROUP_RANK") == "1");
  CHECK(variables.at("GROUP_WORLD_SIZE") == "2");
  const RankEnvironment back = rank_environment(variables);
  CHECK(back.launcher == "dltrain");
  CHECK(back.rank == 2);
  CHECK(back.world_size == 3);
  CHECK(back.local_rank == 2);
  CHECK(back.local_world_size == 3);
  CHECK(back.master_address == "127.0.0.1");
  CHECK(back.master_port == 4567);
  CHECK(back.store_served);
  CHECK(back.run_id == "run.3");
  CHECK(back.store_prefix() == "run.3/");
  CHECK(back.restarts == 3);
  CHECK(back.host_address == "10.0.0.7");
  CHECK(back.run_has_begun);
  CHECK(back.secret == "sesame");
}

TEST_CASE("the variables of MPI launchers are understood") {
  const RankEnvironment e = rank_environment(kOpenMpi);
  CHECK(e.launcher == "mpirun (Open MPI)");
  CHECK(e.rank == 1);
  CHECK(e.world_size == 2);
  CHECK(e.local_rank == 1);
  CHECK(e.master_address == "127.0.0.1");
  CHECK(e.master_port == 29500);
  CHECK(rank_environment({{"MV2_COMM_WORLD_RANK", "0"},
                          {"MV2_COMM_WORLD_SIZE", "2"},
                          {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                          {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}})
            .world_size == 2);
  const RankEnvironment pmi = rank_environment(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK(pmi.rank == 1);
  CHECK(pmi.local_world_size == 2);
  const Environment two_hosts = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(names(refusal(two_hosts), "MASTER_ADDR"));
  CHECK(rank_environment(with(two_hosts, {{"MASTER_ADDR", "h"}})).master_address == "h");
}

TEST_CASE("a task of srun is a rank, the shell of a batch script is not") {
  const RankEnvironment e = rank_environment(kSlurm);
  CHECK(e.launcher == "srun");
  CHECK(e.rank == 4);
  CHECK(e.world_size == 5);
  CHECK(e.local_rank == 0);
  CHECK(e.local_world_size == 1);
  CHECK(e.master_address == "gpu07");
  CHECK(e.run_id == "77.3");
  CHECK_FALSE(rank_environment(without(kSlurm, "SLURM_STEP_ID")).distributed());
  CHECK_FALSE(rank_environment(with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}})).distributed());
  CHECK_FALSE(rank_environment(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}))
                  .distributed());
  const RankEnvironment one_host =
      rank_environment(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "5"}, {"SLURM_NODEID", "0"}}));
  CHECK(one_host.local_world_size == 5);
  CHECK(one_host.master_address == "127.0.0.1");
}

TEST_CASE("an inner launcher wins over the one around it") {
  CHECK(rank_environment(with(kSlurm, kOpenMpi)).launcher == "mpirun (Open MPI)");
  CHECK(rank_environment(with(kSlurm, kTorchrun)).launcher == "torchrun");
}

TEST_CASE("ranks of srun are no ranks of mpiexec, although srun sets the variables of PMI, too") {
  const Environment step{{"SLURM_JOB_ID", "5"},  {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "1"},  {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"},
                         {"SLURM_NODEID", "0"},  {"SLURM_STEP_NODELIST", "n01"},
                         {"PMI_FD", "9"},        {"PMI_JOBID", "5.0"},
                         {"PMI_RANK", "1"},      {"PMI_SIZE", "2"}};
  const RankEnvironment e = rank_environment(step);
  CHECK(e.launcher == "srun");
  CHECK(e.rank == 1);
  CHECK(e.local_rank == 1);
  CHECK(e.local_world_size == 2);
  CHECK(e.run_id == "5.0");
  // An mpiexec that starts one helper a node through srun: its ranks are others than the step's.
  const Environment helpers = with(
      step,
      {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK(rank_environment(with(helpers, {{"MASTER_ADDR", "n01"}})).launcher == "mpiexec (PMI)");
  CHECK(rank_environment(with(helpers, {{"MASTER_ADDR", "n01"}})).rank == 3);
  CHECK(rank_environment(with(step, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MASTER_ADDR", "n01"}}))
            .launcher == "mpiexec (PMI)");
}

TEST_CASE("an incomplete or contradictory environment names its variables") {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    INFO(name);
    CHECK(names(refusal(without(kTorchrun, name)), name));
  }
  for (const auto& [name, value] : kOpenMpi) {
    INFO(name);
    CHECK(names(refusal(without(kOpenMpi, name)), name));
  }
  CHECK(names(refusal(without(kSlurm, "SLURM_LOCALID")), "SLURM_LOCALID"));
  const std::pair<const char*, const char*> wrong[] = {{"RANK", "8"},
                                                       {"RANK", "-1"},
                                                       {"RANK", "two"},
                                                       {"WORLD_SIZE", "0"},
                                                       {"LOCAL_RANK", "4"},
                                                       {"RANK", "1 "},
                                                       {"LOCAL_WORLD_SIZE", "9"},
                                                       {"MASTER_PORT", "0"},
                                                       {"MASTER_PORT", "http"},
                                                       {"WORLD_SIZE", "99999999999999999999"}};
  for (const auto& [name, value] : wrong) {
    INFO(name << "=" << value);
    const std::string message = refusal(with(kTorchrun, {{name, value}}));
    CHECK(names(message, name));
    CHECK(names(message, value));
  }
  CHECK(names(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})), "TASKS_PER_NODE"));
  CHECK(names(refusal(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu["}})), "MASTER_ADDR"));
}

TEST_CASE("the first host of a Slurm list") {
  CHECK(first_slurm_host("gpu[03-07,11],x1") == "gpu03");
  CHECK(first_slurm_host("a,b") == "a");
  CHECK(first_slurm_host("solo") == "solo");
  CHECK(first_slurm_host("n[9]") == "n9");
  CHECK(first_slurm_host("n[1-2]-ib,m") == "n1-ib");
  CHECK(first_slurm_host("n[").empty());
  CHECK(first_slurm_host("n[]").empty());
  CHECK(first_slurm_host("").empty());
}

#include "comm/environment.h"

#include <charconv>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>

#include <unistd.h>

#include "base/error.h"
#include "base/parse_number.h"

namespace dltrain {
namespace {

// The names of one launcher's variables.
struct Family {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  bool local_optional;
};

constexpr Family kTorchrun{"torchrun",         "RANK", "WORLD_SIZE", "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE", true};
constexpr Family kFamilies[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", false},
};
// srun --mpi=pmi2 sets these too, but Slurm's own variables are more complete.
constexpr Family kPmi{"mpiexec (PMI)",   "PMI_RANK",        "PMI_SIZE",
                      "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(std::string_view name) const { return text(name).has_value(); }
  // An empty variable counts as not set.
  std::optional<std::string> text(std::string_view name) const {
    const auto found = environment_.find(std::string(name));
    if (found == environment_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  int number(std::string_view name, int minimum, int maximum) const {
    const std::string value = text(name).value_or("");
    const auto result = parse_number<int>(value);
    if (!result || *result < minimum || *result > maximum) {
      fail(ExitCode::usage, "environment variable {}='{}': expected an integer from {} to {}", name,
           value, minimum, maximum);
    }
    return *result;
  }

 private:
  const Environment& environment_;
};

constexpr int kMaxRanks = 1 << 20;

// Throws unless all of the names are set.
void require_all(const Reader& reader, const char* launcher,
                 std::initializer_list<const char*> names) {
  std::string present, missing;
  for (const char* name : names) {
    std::string& list = reader.has(name) ? present : missing;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return;
  fail(
      ExitCode::usage,
      "the environment of {} is incomplete: {} set, but not {}; start the program with a launcher, "
      "or unset these variables",
      launcher, present, missing);
}

// Reads a family's numbers. Returns false if none of its identifying variables is set.
bool read_family(const Reader& reader, const Family& family, RankEnvironment& to) {
  if (!reader.has(family.rank) && !reader.has(family.size)) return false;
  require_all(reader, family.launcher, {family.rank, family.size});
  to.launcher = family.launcher;
  to.world_size = reader.number(family.size, 1, kMaxRanks);
  to.rank = reader.number(family.rank, 0, to.world_size - 1);
  if (family.local_optional && !reader.has(family.local_rank) && !reader.has(family.local_size)) {
    return true;  // one rank per host, as on Kubernetes
  }
  require_all(reader, family.launcher, {family.local_rank, family.local_size});
  to.local_world_size = reader.number(family.local_size, 1, to.world_size);
  to.local_rank = reader.number(family.local_rank, 0, to.local_world_size - 1);
  return true;
}

// Returns the number of tasks of node i from SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1".
int slurm_tasks_on_node(const std::string& list, int node) {
  for (const char* at = list.c_str();;) {
    int tasks = 0, repeat = 1, used = 0;
    if (std::sscanf(at, "%d%n", &tasks, &used) != 1 || tasks < 1) break;
    at += used;
    if (std::sscanf(at, "(x%d)%n", &repeat, &used) == 1) at += used;
    if (node < repeat) return tasks;
    node -= repeat;
    if (*at++ != ',') break;
  }
  fail(ExitCode::usage, "environment variable SLURM_STEP_TASKS_PER_NODE='{}' cannot be parsed",
       list);
}

// Reads the variables of a task of srun. Batch scripts and interactive allocations have step
// numbers near 2^32, or none.
bool read_slurm(const Reader& reader, RankEnvironment& to) {
  const auto step = reader.text("SLURM_STEP_ID");
  if (!step || !reader.has("SLURM_PROCID")) return false;
  int64_t id = 0;
  const auto parsed = std::from_chars(step->data(), step->data() + step->size(), id);
  if (parsed.ec != std::errc() || id < 0 || id > std::numeric_limits<int32_t>::max()) return false;
  const char* size = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  require_all(reader, "srun", {"SLURM_PROCID", size, "SLURM_LOCALID"});
  const int world_size = reader.number(size, 1, kMaxRanks);
  if (world_size == 1) return false;
  to.launcher = "srun";
  to.world_size = world_size;
  to.rank = reader.number("SLURM_PROCID", 0, world_size - 1);
  to.local_world_size = world_size;
  if (const auto tasks = reader.text("SLURM_STEP_TASKS_PER_NODE")) {
    const int node = reader.has("SLURM_NODEID") ? reader.number("SLURM_NODEID", 0, kMaxRanks) : 0;
    to.local_world_size = slurm_tasks_on_node(*tasks, node);
  }
  to.local_rank = reader.number("SLURM_LOCALID", 0, to.local_world_size - 1);
  if (!reader.has("MASTER_ADDR") && to.local_world_size < world_size) {
    const char* list =
        reader.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    to.master_address = first_slurm_host(reader.text(list).value_or(""));
  }
  return true;
}

// With srun --mpi=pmi2 both sets of variables are equal, and PMI's lacks the local numbers. If they
// differ, mpiexec has started the ranks through its own step.
bool read_pmi_of_slurm(const Reader& reader, RankEnvironment& to) {
  if (!reader.has(kPmi.rank) || reader.has(kPmi.local_rank)) return false;
  RankEnvironment slurm;
  if (!read_slurm(reader, slurm) || reader.text(kPmi.rank) != std::to_string(slurm.rank) ||
      reader.text(kPmi.size) != std::to_string(slurm.world_size)) {
    return false;
  }
  to = slurm;
  return true;
}

void read_master(const Reader& reader, RankEnvironment& to) {
  if (to.launcher == kTorchrun.launcher && to.world_size > 1) {
    require_all(reader, to.launcher.c_str(),
                {kTorchrun.rank, kTorchrun.size, "MASTER_ADDR", "MASTER_PORT"});
  }
  if (const auto address = reader.text("MASTER_ADDR")) {
    to.master_address = *address;
  } else if (to.launcher != "srun" && to.local_world_size < to.world_size) {
    fail(ExitCode::usage,
         "{} started {} ranks on more than one host ({} on this one): set MASTER_ADDR to rank 0's "
         "host (and MASTER_PORT)",
         to.launcher, to.world_size, to.local_world_size);
  }
  if (to.master_address.empty()) {
    fail(ExitCode::usage, "cannot read the node list of srun: set MASTER_ADDR to rank 0's host");
  }
  if (reader.has("MASTER_PORT")) to.master_port = reader.number("MASTER_PORT", 1, 65535);
  // torchrun's own store uses MASTER_PORT.
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    to.master_port += to.master_port < 65535 ? 1 : -1;
  }
}

}  // namespace

RankEnvironment rank_environment(const Environment& environment) {
  const Reader reader(environment);
  RankEnvironment result;
  bool found = read_family(reader, kTorchrun, result);
  for (const Family& family : kFamilies) found = found || read_family(reader, family, result);
  found = found || read_pmi_of_slurm(reader, result) || read_family(reader, kPmi, result) ||
          read_slurm(reader, result);
  if (!found) return result;
  read_master(reader, result);
  if (reader.text("DLTRAIN_STORE").value_or("") == "launcher") {
    result.launcher = "dltrain";
    result.store_served = true;
  }
  result.secret = reader.text("DLTRAIN_STORE_SECRET").value_or("");
  for (const char* name : {"DLTRAIN_RUN_ID", "TORCHELASTIC_RUN_ID"}) {
    if (result.run_id.empty()) result.run_id = reader.text(name).value_or("");
  }
  if (reader.has("TORCHELASTIC_RESTART_COUNT")) {
    result.restarts = reader.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRanks);
    result.run_id += fmt::format(".{}", result.restarts);
  }
  result.host_address = reader.text("DLTRAIN_HOST_ADDRESS").value_or("");
  result.run_has_begun = reader.text("DLTRAIN_RESTARTED").value_or("") == "1";
  if (result.launcher == "srun") {
    result.run_id = reader.text("SLURM_JOB_ID").value_or("") + "." + *reader.text("SLURM_STEP_ID");
  }
  return result;
}

Environment variables_for(const RankEnvironment& rank) {
  Environment variables{{"RANK", std::to_string(rank.rank)},
                        {"WORLD_SIZE", std::to_string(rank.world_size)},
                        {"LOCAL_RANK", std::to_string(rank.local_rank)},
                        {"LOCAL_WORLD_SIZE", std::to_string(rank.local_world_size)},
                        {"GROUP_RANK", std::to_string(rank.node)},
                        {"GROUP_WORLD_SIZE", std::to_string(rank.nodes)},
                        {"ROLE_RANK", std::to_string(rank.rank)},
                        {"ROLE_WORLD_SIZE", std::to_string(rank.world_size)},
                        {"ROLE_NAME", "default"},
                        {"TORCHELASTIC_RESTART_COUNT", std::to_string(rank.restarts)},
                        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(rank.max_restarts)},
                        {"TORCHELASTIC_RUN_ID", rank.run_id},
                        {"MASTER_ADDR", rank.master_address},
                        {"MASTER_PORT", std::to_string(rank.master_port)},
                        {"DLTRAIN_RUN_ID", rank.run_id},
                        {"DLTRAIN_STORE_SECRET", rank.secret}};
  if (rank.store_served) variables["DLTRAIN_STORE"] = "launcher";
  if (!rank.host_address.empty()) variables["DLTRAIN_HOST_ADDRESS"] = rank.host_address;
  if (rank.run_has_begun) variables["DLTRAIN_RESTARTED"] = "1";
  return variables;
}

Environment without_rank(Environment environment) {
  const RankEnvironment launched{
      .store_served = true, .host_address = "any", .run_has_begun = true};
  for (const auto& [name, value] : variables_for(launched)) environment.erase(name);
  for (const Family& family : {kFamilies[0], kFamilies[1], kPmi}) {
    for (const char* name : {family.rank, family.size, family.local_rank, family.local_size}) {
      environment.erase(name);
    }
  }
  environment.erase("SLURM_PROCID");
  environment.erase("SLURM_LOCALID");
  std::erase_if(environment, [](const auto& v) {
    return v.first.starts_with("TORCHELASTIC_") || v.first.starts_with("SLURM_STEP_");
  });
  return environment;
}

std::string first_slurm_host(const std::string& list) {
  const size_t end = list.find_first_of("[,");
  std::string host = list.substr(0, end);
  if (end == list.npos || list[end] == ',') return host;
  const size_t close = list.find(']', end);
  const size_t stop = list.find_first_of("-,]", end);
  if (close == list.npos || stop == end + 1) return "";
  host += list.substr(end + 1, stop - end - 1);
  // The text after the bracket is part of every name: "n[1-2]-ib".
  const size_t next = list.find(',', close);
  return host + list.substr(close + 1, next == list.npos ? next : next - close - 1);
}

Environment process_environment() {
  Environment result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != text.npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

}  // namespace dltrain

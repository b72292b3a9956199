// dltrain launch: torchrun's flags, then the arguments of the ranks.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "base/encodings.h"
#include "base/error.h"
#include "comm/socket.h"
#include "dltrain/commands.h"
#include "dltrain/ranks.h"
#include "launch/launcher.h"
#include "launch/options.h"

namespace dltrain {
namespace {

constexpr int kStaticPort = 29500, kRendezvousPort = 29400;  // torchrun's defaults

struct Flags {
  std::string nodes = "1:1", processes = "1", backend = "static", endpoint, run_id = "none", conf;
  std::string binding = "exclusive", master_address, log_dir, local_address;
  int node_rank = 0, master_port = kStaticPort, max_restarts = 0, tee = 0, redirects = 0;
  double monitor_interval = 0.1;
  bool standalone = false;
  CLI::Option *node_rank_given = nullptr, *master_port_given = nullptr, *tee_given = nullptr,
              *redirects_given = nullptr;
};

// torchrun accepts dashes and underscores, and PET_… in the environment.
std::string names_of(const std::string& dashed) {
  std::string underscored = dashed;
  for (size_t i = 2; i < underscored.size(); ++i) {
    if (underscored[i] == '-') underscored[i] = '_';
  }
  return underscored == dashed ? dashed : dashed + "," + underscored;
}

std::string variable_of(const std::string& dashed) {
  std::string name = "PET_";
  for (const char c : dashed.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* add_flag(CLI::App& command, const std::string& name, T& value, const std::string& doc,
                      const std::string& shorter = "") {
  return command.add_option((shorter.empty() ? "" : shorter + ",") + names_of(name), value, doc)
      ->envname(variable_of(name))
      ->take_last();
}

// Reads the endpoint, the node rank and the port of the store.
void set_rendezvous(const Flags& flags, LaunchOptions& to) {
  if (flags.backend != "static" && flags.backend != "c10d") {
    fail(ExitCode::usage,
         "--rdzv-backend {}: static and c10d are possible; both use dltrain's own store",
         flags.backend);
  }
  const bool has_rank = flags.node_rank_given->count() > 0;
  const bool has_port = flags.master_port_given->count() > 0;
  if (flags.standalone &&
      (to.max_nodes > 1 || !flags.endpoint.empty() || has_rank || !flags.master_address.empty())) {
    fail(ExitCode::usage,
         "--standalone is one node on a free port: it takes no --nnodes above 1, --node-rank, "
         "--master-addr or --rdzv-endpoint");
  }
  if (!flags.endpoint.empty() && (!flags.master_address.empty() || has_port)) {
    fail(ExitCode::usage,
         "--rdzv-endpoint and --master-addr/--master-port are alternatives; give one");
  }
  if (to.max_nodes == 1) {
    if (has_rank && flags.node_rank != 0) {
      fail(ExitCode::usage, "--node-rank {} of one node (--nnodes)", flags.node_rank);
    }
    if (!flags.endpoint.empty()) to.port = parse_endpoint(flags.endpoint, 0).second;
    if (has_port && !flags.standalone) to.port = flags.master_port;
    return;
  }
  if (!flags.endpoint.empty()) {
    std::tie(to.address, to.port) = parse_endpoint(flags.endpoint, kRendezvousPort);
  } else if (!flags.master_address.empty()) {
    to.address = flags.master_address;
    to.port = flags.master_port;
  } else {
    fail(ExitCode::usage,
         "several nodes need an endpoint: --rdzv-endpoint HOST:PORT, or --master-addr HOST with "
         "--node-rank");
  }
  if (to.port == 0) fail(ExitCode::usage, "several nodes need a fixed port, not 0");
  if (!has_rank && flags.endpoint.empty()) {
    fail(ExitCode::usage, "--master-addr with several nodes needs --node-rank on each of them");
  }
  if (has_rank && to.min_nodes != to.max_nodes) {
    fail(ExitCode::usage,
         "--node-rank with --nnodes {}:{}: leave it out, because the nodes that come are numbered "
         "by the names of their hosts",
         to.min_nodes, to.max_nodes);
  }
  if (has_rank && flags.node_rank >= to.max_nodes) {
    fail(ExitCode::usage, "--node-rank {} of {} nodes", flags.node_rank, to.max_nodes);
  }
  if (has_rank) to.node_rank = flags.node_rank;
}

LaunchOptions options_from(const Flags& flags) {
  LaunchOptions out;
  std::tie(out.min_nodes, out.max_nodes) = parse_nodes(flags.nodes);
  out.processes = parse_ranks(flags.processes);
  out.bind_cpus = flags.binding == "exclusive";
  if (!flags.conf.empty()) parse_rendezvous_conf(flags.conf, out);
  set_rendezvous(flags, out);
  if (!flags.endpoint.empty()) out.port_setting = "--rdzv-endpoint";
  if (flags.run_id.empty() || flags.run_id.size() > 200 ||
      flags.run_id.find('/') != std::string::npos) {
    fail(ExitCode::usage, "--rdzv-id '{}': expected 1 to 200 characters, no '/'", flags.run_id);
  }
  out.run_id = flags.run_id;
  if (const char* secret = std::getenv("DLTRAIN_STORE_SECRET")) out.secret = secret;
  out.max_restarts = flags.max_restarts;
  out.monitor_interval =
      std::chrono::milliseconds(static_cast<int64_t>(1000 * flags.monitor_interval));
  out.host_address = flags.local_address;
  out.log_dir = flags.log_dir;
  out.tee = flags.tee;
  out.redirects = flags.redirects;
  if (!flags.log_dir.empty() && flags.tee_given->count() + flags.redirects_given->count() == 0) {
    out.tee = 3;
  }
  return out;
}

// A store that other hosts reach requires a secret. It is no argument, because all users of a host
// can read those.
void check_secret(const Flags& flags, const LaunchOptions& options) {
  if (!options.secret.empty() || options.address.empty() || is_loopback(options.address)) return;
  std::string command;
  for (const std::string& word : command_line()) command += " " + quoted_for_shell(word);
  fail(ExitCode::usage,
       "DLTRAIN_STORE_SECRET is not set: anybody who reaches {} could join or end this run. Set it "
       "to the same text on all nodes, for example to this new one. On every node{}:\n"
       "    export DLTRAIN_STORE_SECRET={}\n    dltrain{}",
       endpoint_text(options.address, options.port),
       flags.node_rank_given->count() > 0 ? ", each with its own --node-rank" : "", random_name(),
       command);
}

// The arguments after the flags, and the names of all flags.
std::vector<std::string> rank_arguments, flag_names;

// Refuses flags of the launcher among the arguments of the ranks.
void check_rank_arguments(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name != "--nproc-per-node" && name != "--nproc_per_node" &&
        std::find(flag_names.begin(), flag_names.end(), name) != flag_names.end()) {
      fail(ExitCode::usage, "{}: flags of the launcher must precede the configuration", name);
    }
  }
}

// Prints the flags that have no effect with one node.
void print_unused(const Flags& flags, const LaunchOptions& options) {
  if (options.max_nodes > 1) return;
  std::string names;
  const auto name = [&](bool given, const char* flag) {
    if (given) names += fmt::format("{}{}", names.empty() ? "" : ", ", flag);
  };
  name(!flags.master_address.empty(), "--master-addr");
  name(flags.standalone && flags.master_port_given->count() > 0, "--master-port");
  // Its port is used for the store.
  name(!flags.endpoint.empty(), "the host of --rdzv-endpoint");
  name(!flags.local_address.empty(), "--local-addr");
  name(!flags.conf.empty(), "--rdzv-conf");
  if (!names.empty()) fmt::print(stderr, "dltrain: {}: not used, there is one node\n", names);
}

ExitCode run_launch(const Flags& flags) {
  LaunchOptions options = options_from(flags);
  print_unused(flags, options);
  std::vector<std::string> arguments = rank_arguments;
  if (arguments.empty()) {
    fail(ExitCode::usage, "nothing to launch: give a configuration, or `train` and its arguments");
  }
  arguments = with_command(arguments);
  if (arguments[0] != "train") {
    fail(ExitCode::usage,
         "`dltrain launch` starts `dltrain train` only, not `dltrain {}` (`dltrain profile` has a "
         "--nproc-per-node of its own)",
         arguments[0]);
  }
  check_secret(flags, options);
  const bool fixed = options.min_nodes == options.max_nodes;
  const std::vector<std::string> own(arguments.begin() + 1, arguments.end());
  check_rank_arguments(own);
  refuse_pipes(own);
  // Nodes may have different numbers of ranks, so only a single node knows the total.
  const int ranks = fixed && options.max_nodes == 1 ? options.processes : 0;
  return train_launched(own, ranks, [&](const LaunchedRun& run) {
    options.run = run;
    return launch(options, arguments);
  });
}

}  // namespace

// The arguments of the ranks start at the first word or unknown flag.
void keep_rank_arguments(const CLI::App& command, std::vector<std::string>& arguments) {
  size_t at = 1;
  while (at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "--") {
    const std::string& argument = arguments[at];
    const bool shorter = !argument.starts_with("--");
    const size_t name_end = shorter ? 2 : argument.find('=');
    const CLI::Option* option = command.get_option_no_throw(argument.substr(0, name_end));
    if (option == nullptr) break;
    const bool has_value = name_end < argument.size();
    at += option->get_items_expected_max() == 0 || has_value ? 1 : 2;
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help") flag_names.push_back("--" + name);
    }
  }
  at = std::min(at, arguments.size());
  const size_t begin = at < arguments.size() && arguments[at] == "--" ? at + 1 : at;
  rank_arguments.assign(arguments.begin() + static_cast<ptrdiff_t>(begin), arguments.end());
  arguments.resize(at);
}

CommandBody add_launch(CLI::App& command) {
  auto flags = std::make_shared<Flags>();
  command.footer(
      "dltrain launch [OPTIONS] [--] CONFIG… | train …: the arguments after the options are those "
      "of "
      "each rank.\n"
      "docs/launch.md: nodes, restarts, recipes for Slurm, Kubernetes and ssh.\n");
  add_flag(command, "--nnodes", flags->nodes,
           "Nodes: N, or MIN:MAX for as many as connect in time");
  add_flag(command, "--nproc-per-node", flags->processes,
           "Ranks on this node: a number, auto, gpu or cpu");
  flags->node_rank_given =
      add_flag(command, "--node-rank", flags->node_rank,
               "This node's number (default with --rdzv-endpoint: by the names of the hosts)")
          ->check(CLI::Range(0, 1 << 16));
  add_flag(command, "--master-addr", flags->master_address, "Node 0's address");
  flags->master_port_given = add_flag(command, "--master-port", flags->master_port,
                                      "Port of the store on node 0 (one node: any free one, as 0)")
                                 ->check(CLI::Range(0, 65535));
  add_flag(command, "--rdzv-endpoint", flags->endpoint,
           "Endpoint of all nodes: HOST:PORT of one of them");
  add_flag(command, "--rdzv-id", flags->run_id, "Name of the run, the same on all nodes");
  add_flag(command, "--rdzv-backend", flags->backend,
           "static or c10d: both use dltrain's own store");
  add_flag(command, "--rdzv-conf", flags->conf,
           "join_timeout=SECONDS (600), last_call_timeout=SECONDS (30), read_timeout=SECONDS (60)");
  command.add_flag("--standalone", flags->standalone, "One node, a free port")
      ->envname("PET_STANDALONE");
  add_flag(command, "--local-addr", flags->local_address,
           "This node's address, as the other nodes reach it");
  add_flag(command, "--max-restarts", flags->max_restarts,
           "Maximum number of restarts of all ranks after failures, from the newest checkpoint")
      ->check(CLI::Range(0, 1 << 20));
  add_flag(command, "--numa-binding", flags->binding,
           "CPUs of a rank: exclusive (its own) or none (all of the launcher)")
      ->check(CLI::IsMember({"exclusive", "none"}));
  add_flag(command, "--monitor-interval", flags->monitor_interval,
           "Seconds between checks of the ranks, at most 0.2")
      ->check(CLI::Range(0.001, 60.0));
  add_flag(
      command, "--log-dir", flags->log_dir,
      "Folder for the output of the ranks (implies --tee 3 unless --tee or --redirects is given)");
  flags->tee_given =
      add_flag(command, "--tee", flags->tee,
               "Streams that go to files of --log-dir too: 0, 1 (stdout), 2 (stderr), 3", "-t")
          ->check(CLI::Range(0, 3));
  flags->redirects_given = add_flag(command, "--redirects", flags->redirects,
                                    "Streams that go to files of --log-dir only; as --tee", "-r")
                               ->check(CLI::Range(0, 3));
  return [flags] { return run_launch(*flags); };
}

}  // namespace dltrain

#include "launch/rendezvous.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "base/json.h"

namespace dltrain {

using nlohmann::json;
using std::chrono::milliseconds;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LaunchNode, host, address, processes, wanted_rank, is_leader,
                                   process, nnodes, max_restarts, leader, id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Round, nodes, problem, code, own, max_restarts, run_has_begun)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, code, secondary, message, rank, last_lines, launcher)

namespace {

// Interval between attempts to resolve a name, and the time after which the wait is logged.
constexpr milliseconds kNamePause{500}, kNameTime{2'000};
// The time that a leader waits at the end for the other nodes to disconnect.
constexpr milliseconds kShutdownTimeout{3'000};
// The time that the others wait for a decision of the leader that is due.
constexpr milliseconds kAnswerTimeout{10'000};
// Bytes of an output line that are sent to the other nodes.
constexpr size_t kMaxLine = 2000;

template <typename Record>
Record parse_record(const std::string& text) {
  try {
    return parse_json(text).get<Record>();
  } catch (const json::exception&) {
    fail(ExitCode::rank, "cannot parse a message of another launcher; is it of the same version?");
  }
}

// Returns what is wrong with the requested node ranks, which ascend.
std::string contradiction(const std::vector<LaunchNode>& nodes) {
  for (size_t i = 0; i < nodes.size() && nodes.back().wanted_rank >= 0; ++i) {
    const int wanted = nodes[i].wanted_rank;
    if (wanted == static_cast<int>(i)) continue;
    if (wanted < 0) {
      return fmt::format("the node {} gives no --node-rank, but others do", nodes[i].host);
    }
    return fmt::format(
        "nodes have contradictory --node-rank: {} where {} was expected, of {} nodes", wanted, i,
        nodes.size());
  }
  return "";
}

// Returns which option differs between two launchers, if it must be equal.
std::string difference(const LaunchNode& a, const LaunchNode& b) {
  const auto sentence = [&](const char* flag, const auto& of_a, const auto& of_b) {
    return fmt::format(
        "the launchers were given different {}: {} on {} (process {}) and {} on {} (process {})",
        flag, of_a, a.host, a.process, of_b, b.host, b.process);
  };
  if (a.nnodes != b.nnodes) return sentence("--nnodes", a.nnodes, b.nnodes);
  if (a.max_restarts != b.max_restarts) {
    return sentence("--max-restarts", a.max_restarts, b.max_restarts);
  }
  return "";
}

// The leader does not know its own address; the other nodes do.
void set_leader_address(std::vector<LaunchNode>& nodes) {
  std::string address = nodes[0].leader;
  for (const LaunchNode& node : nodes) {
    if (!node.is_leader) address = node.leader;
  }
  for (LaunchNode& node : nodes) {
    if (node.is_leader) node.address = address;
  }
}

Failure launcher_failure(ExitCode code, const char* what) {
  return {.code = static_cast<int>(code),
          .message =
              fmt::format("the launcher on {} (process {}) was {}", host_name(), getpid(), what)};
}

int sum_of_processes(std::vector<LaunchNode>::const_iterator begin,
                     std::vector<LaunchNode>::const_iterator end) {
  return std::accumulate(begin, end, 0,
                         [](int sum, const LaunchNode& node) { return sum + node.processes; });
}

}  // namespace

int Round::first_rank() const {
  return sum_of_processes(nodes.begin(), nodes.begin() + own);
}

int Round::world_size() const {
  return sum_of_processes(nodes.begin(), nodes.end());
}

Rendezvous::Rendezvous(const LaunchOptions& options, const std::string& secret,
                       std::function<bool()> interrupted)
    : options_(options), secret_(secret), interrupted_(std::move(interrupted)) {
  open();
  client_ = std::make_unique<StoreClient>(StoreOptions{.address = address_,
                                                       .port = port_,
                                                       .secret = secret_,
                                                       .connect_timeout = options_.join_timeout,
                                                       .answer_time = options_.read_timeout,
                                                       .who = "launcher",
                                                       .interrupted = interrupted_});
  if (is_leader()) {
    client_->set(attempt_key(), "0");
    return;
  }
  // The leader writes it as soon as it serves the store.
  const auto attempt = client_->find(attempt_key(), kShutdownTimeout);
  if (!attempt) {
    fail(ExitCode::rank, "the store at {} belongs to a run other than '{}' (--rdzv-id)",
         endpoint_text(address_, port_), options_.run_id);
  }
  attempt_ = std::stoi(*attempt);
}

// If the address is one of this host, its first launcher serves the store.
void Rendezvous::open() {
  if (options_.address.empty()) {
    address_ = "127.0.0.1";
    server_ = std::make_unique<StoreServer>(address_, options_.port, secret_, nullptr,
                                            milliseconds(0), options_.port_setting);
    port_ = server_->port();
    return;
  }
  address_ = options_.address;
  port_ = options_.port;
  wait_for_name();
  const bool must_lead = options_.node_rank == 0;
  if (options_.node_rank.value_or(0) != 0) return;
  if (!is_own_address(address_)) {
    if (!must_lead) return;
    fail(ExitCode::usage, "node 0 serves the store, but {} is no address of this host", address_);
  }
  const auto on_refused = [endpoint = endpoint_text(address_, port_)](const std::string& from) {
    // The store's thread must not wait for a full terminal.
    pollfd entry{STDERR_FILENO, POLLOUT, 0};
    if (poll(&entry, 1, 0) != 1) return;
    print_line(
        fmt::format("a launcher or rank at {} was refused at {}: it has another secret "
                    "(DLTRAIN_STORE_SECRET)",
                    from, endpoint));
  };
  try {
    server_ = std::make_unique<StoreServer>(listening_address(address_), port_, secret_, on_refused,
                                            milliseconds(0), options_.port_setting);
  } catch (const Error&) {
    // Another launcher of the run was first, if the nodes have no fixed order.
    if (must_lead) throw;
  }
}

// The name of a host that starts at the same time may become known later (Kubernetes).
void Rendezvous::wait_for_name() {
  const auto begin = Clock::now();
  bool logged = false;
  const auto resolved = [&] {
    const std::string problem = resolve_problem(address_);
    if (!problem.empty() && !logged && Clock::now() - begin >= kNameTime) {
      print_line(fmt::format("waiting for the name '{}': {}", address_, problem));
      logged = true;
    }
    return problem.empty();
  };
  if (!wait_for(options_.join_timeout, resolved, kNamePause) && interrupted_()) {
    fail(ExitCode::stopped, "interrupted while waiting for the name '{}'", address_);
  }
}

template <typename Condition>
bool Rendezvous::wait_for(milliseconds timeout, const Condition& condition, milliseconds pause) {
  const auto end = Clock::now() + timeout;
  while (!condition()) {
    if (interrupted_() || Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::min(pause, time_until(end)));
  }
  return true;
}

void Rendezvous::join() {
  const LaunchNode self{
      .host = host_name(),
      .address = options_.host_address.empty() ? client_->local_address() : options_.host_address,
      .processes = options_.processes,
      .wanted_rank = options_.node_rank.value_or(-1),
      .is_leader = is_leader(),
      .process = getpid(),
      .nnodes = options_.min_nodes == options_.max_nodes
                    ? std::to_string(options_.max_nodes)
                    : fmt::format("{}:{}", options_.min_nodes, options_.max_nodes),
      .max_restarts = options_.max_restarts,
      .leader = client_->server_address(),
      .id = id_};
  client_->set(key("join/") + id_, json_text(json(self)));
  Failure lost = launcher_failure(ExitCode::rank, "lost");
  lost.launcher = id_;
  client_->set_will(key("end"), json_text(json(lost)));
}

std::optional<Round> Rendezvous::join_round(bool run_has_begun) {
  join();
  if (is_leader()) lead(run_has_begun);
  const auto wait_limit = options_.join_timeout + options_.last_call + kAnswerTimeout;
  std::optional<std::string> plan;
  std::optional<Failure> end;
  const auto decided = [&] {
    plan = client_->try_get(key("plan"));
    if (!plan) end = remote_failure();
    // If a launcher is lost now, the attempt that it has joined fails later.
    if (end && end->code != static_cast<int>(ExitCode::stopped)) end.reset();
    return plan || end;
  };
  if (!wait_for(wait_limit, decided)) {
    if (interrupted_()) {
      report(launcher_failure(ExitCode::stopped, "interrupted"));
      leave();
      return std::nullopt;
    }
    fail(ExitCode::rank, "the leading launcher at {} made no decision in time",
         endpoint_text(address_, port_));
  }
  if (end) {
    leave();
    throw Error(static_cast<ExitCode>(end->code), end->message);
  }
  auto round = parse_record<Round>(*plan);
  if (!round.problem.empty()) {
    leave();
    throw Error(static_cast<ExitCode>(round.code), round.problem);
  }
  const auto own = std::ranges::find(round.nodes, id_, &LaunchNode::id);
  if (own == round.nodes.end()) {
    leave();
    fail(ExitCode::rank,
         "this node came too late, or with other --nnodes or --max-restarts: run '{}' has begun "
         "with {} nodes",
         options_.run_id, round.nodes.size());
  }
  round.own = static_cast<int>(own - round.nodes.begin());
  return round;
}

// Waits for the nodes, then writes which of them take part, or why the attempt cannot start.
void Rendezvous::lead(bool run_has_begun) {
  auto last_arrival = Clock::now();
  Round round{.code = static_cast<int>(ExitCode::usage),
              .max_restarts = options_.max_restarts,
              .run_has_begun = run_has_begun};
  std::vector<LaunchNode>& nodes = round.nodes;
  const auto own = parse_record<LaunchNode>(client_->get(key("join/") + id_, kAnswerTimeout));
  const auto count = [&] { return static_cast<int>(nodes.size()); };
  size_t seen = 0;
  const auto complete = [&] {
    const std::vector<std::string> joined = client_->list(key("join/"));
    if (joined.size() != seen) {
      seen = joined.size();
      last_arrival = Clock::now();
      nodes.clear();
      for (const std::string& text : joined) {
        nodes.push_back(parse_record<LaunchNode>(text));
        const std::string unlike = difference(own, nodes.back());
        if (attempt_ == 0 && !unlike.empty()) round.problem = unlike;
        // The error of a new node does not end a run in progress.
        if (attempt_ > 0 && !unlike.empty()) nodes.pop_back();
      }
    }
    if (!round.problem.empty()) return true;
    return count() >= options_.max_nodes ||
           (count() >= options_.min_nodes && Clock::now() - last_arrival >= options_.last_call);
  };
  if (!wait_for(options_.join_timeout, complete) && interrupted_()) return;
  // By node rank if given; otherwise the leader first, the others by the names of their hosts.
  const auto order = [](const LaunchNode& a) {
    return std::tuple(a.wanted_rank, !a.is_leader, a.host, a.process);
  };
  std::ranges::sort(nodes, {}, order);
  if (round.problem.empty() && count() < options_.min_nodes) {
    round.code = static_cast<int>(ExitCode::rank);
    round.problem =
        fmt::format("only {} of {} nodes connected to {} within {} s", count(), options_.min_nodes,
                    endpoint_text(address_, port_), options_.join_timeout.count() / 1000.0);
  } else if (round.problem.empty()) {
    if (count() > options_.max_nodes) nodes.resize(static_cast<size_t>(options_.max_nodes));
    round.problem = contradiction(nodes);
  }
  if (options_.host_address.empty()) set_leader_address(nodes);
  client_->set(key("plan"), json_text(json(round)));
}

std::optional<Failure> Rendezvous::report(const Failure& failure) {
  Failure own = failure;
  own.launcher = id_;
  for (std::string& line : own.last_lines) line.resize(std::min(line.size(), kMaxLine));
  const auto first = parse_record<Failure>(client_->put_new(key("end"), json_text(json(own))));
  return first.launcher == id_ ? std::nullopt : std::optional(first);
}

std::optional<Failure> Rendezvous::remote_failure() {
  const auto text = client_->try_get(key("end"));
  return text ? std::optional(parse_record<Failure>(*text)) : std::nullopt;
}

bool Rendezvous::all_done(const Round& round) {
  client_->set(key("done/") + id_, "");
  return client_->list(key("done/")).size() >= round.nodes.size();
}

std::string Rendezvous::decide_restart(const std::string& leaders_reason_to_end) {
  if (is_leader()) {
    if (leaders_reason_to_end.empty()) client_->set(attempt_key(), std::to_string(attempt_ + 1));
    client_->set(key("next"), leaders_reason_to_end);
  }
  const std::string reason = client_->get(key("next"), options_.grace + kAnswerTimeout);
  if (reason.empty()) ++attempt_;
  return reason;
}

void Rendezvous::leave() {
  try {
    client_->set_will(key("end"), "");
  } catch (const Error& error) {
    // The leader has left already; its decision is known here.
    if (error.code() != ExitCode::rank) throw;
  }
  client_.reset();
  if (server_) server_->wait_for_disconnects(kShutdownTimeout);
}

std::string Rendezvous::key_of_ranks(const std::string& name) const {
  RankEnvironment ranks;
  ranks.run_id = fmt::format("{}.{}", options_.run_id, attempt_);
  return ranks.store_prefix() + name;
}

std::optional<std::string> Rendezvous::read_of_ranks(const std::string& name) {
  return client_->try_get(key_of_ranks(name));
}

void Rendezvous::tell_ranks(const RankFailure& failure) {
  client_->put_new(key_of_ranks(watch_keys::kFailure), failure.to_text());
}

}  // namespace dltrain

#include "launch/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>

#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "comm/socket.h"
#include "launch/rendezvous_messages.h"

namespace dltrain {
namespace {

using nlohmann::json;
using namespace launch_messages;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{10};
// Between looks at a name that does not resolve, and when that is told.
constexpr milliseconds kNamePause{500}, kNameTime{2'000};
// How long a leader stays for the others to learn the end.
constexpr milliseconds kFarewell{3'000};
// How long the others wait for a decision of the leader that is due.
constexpr milliseconds kPatience{10'000};

}  // namespace

int Round::first_rank() const {
  return std::accumulate(nodes.begin(), nodes.begin() + own, 0,
                         [](int sum, const LaunchNode& n) { return sum + n.processes; });
}

int Round::world_size() const {
  return std::accumulate(nodes.begin(), nodes.end(), 0,
                         [](int sum, const LaunchNode& n) { return sum + n.processes; });
}

Rendezvous::Rendezvous(const LaunchOptions& options, const std::string& secret,
                       std::function<bool()> interrupted)
    : options_(options), secret_(secret), interrupted_(std::move(interrupted)) {
  open(secret);
  client_ = std::make_unique<StoreClient>(store_options(options.run_id + ".launch/"));
  if (leads()) {
    client_->set("attempt", "0");
    return;
  }
  // A leader writes it as soon as it serves the store.
  if (!wait_for(kFarewell, [&] { return client_->try_get("attempt").has_value(); })) {
    if (interrupted_()) return;
    fail(ExitCode::rank, "the store at {} is that of another run than '{}' (--rdzv-id)",
         endpoint_text(address_, port_), options_.run_id);
  }
  attempt_ = static_cast<int>(client_->add("attempt", 0));
}

StoreOptions Rendezvous::store_options(const std::string& prefix) const {
  return {.address = address_,
          .port = port_,
          .secret = secret_,
          .prefix = prefix,
          .connect_timeout = options_.join_timeout,
          .timeout = options_.join_timeout,
          .answer_time = options_.read_timeout,
          .who = "launcher",
          .interrupted = interrupted_};
}

// Where the address is this host's, the first launcher there serves the store.
void Rendezvous::open(const std::string& secret) {
  if (options_.address.empty()) {
    address_ = "127.0.0.1";
    server_ = std::make_unique<StoreServer>(address_, options_.port, secret);
    port_ = server_->port();
    return;
  }
  address_ = options_.address;
  port_ = options_.port;
  wait_for_name();
  const bool must_lead = options_.is_host.value_or(options_.node_rank == 0);
  const bool may_lead = must_lead || (!options_.is_host && !options_.node_rank);
  if (!may_lead || !is_own_address(address_)) {
    if (must_lead) {
      fail(ExitCode::usage, "{} serves the store, but {} is no address of this host",
           options_.node_rank ? "node 0" : "this node (is_host)", address_);
    }
    return;
  }
  const auto refused = [this, place = endpoint_text(address_, port_)](const std::string& from) {
    const std::lock_guard lock(news_mutex_);
    news_.push_back(
        fmt::format("a launcher or rank at {} came to {} with another secret "
                    "(DLTRAIN_STORE_SECRET) and was refused",
                    from, place));
  };
  try {
    server_ = std::make_unique<StoreServer>(listening_address(address_), port_, secret, refused);
  } catch (const Error&) {
    // Another launcher of the run was first, if nodes come in any order; else the port is not ours.
    if (must_lead) throw;
  }
}

// The name of a host that starts at the same time may be known a while later (Kubernetes), and
// before that nobody can say whether it is this one.
void Rendezvous::wait_for_name() {
  const auto begin = Clock::now();
  bool told = false;
  while (Clock::now() - begin < options_.join_timeout) {
    if (interrupted_()) {
      fail(ExitCode::stopped, "interrupted while waiting for the name '{}'", address_);
    }
    const std::string problem = resolve_problem(address_);
    if (problem.empty()) return;
    if (!told && Clock::now() - begin >= kNameTime) {
      say(fmt::format("waiting for the name '{}': {}", address_, problem));
      told = true;
    }
    std::this_thread::sleep_for(std::min<milliseconds>(
        kNamePause, std::chrono::ceil<milliseconds>(begin + options_.join_timeout - Clock::now())));
  }
}

template <typename Condition>
bool Rendezvous::wait_for(milliseconds timeout, const Condition& condition) {
  const auto end = Clock::now() + timeout;
  while (!condition()) {
    tell_news();
    if (interrupted_() || Clock::now() >= end) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

void Rendezvous::join() {
  LaunchNode self{
      .host = host_name(),
      .address = options_.host_address.empty() ? client_->local_address() : options_.host_address,
      .processes = options_.processes,
      .wanted_rank = options_.node_rank.value_or(-1)};
  done_ = false;
  ranks_.reset();
  place_ = static_cast<int>(client_->add(key("count"), 1)) - 1;
  json object = to_json(self);
  object["leads"] = leads();
  object["process"] = getpid();
  object["nnodes"] = nodes_text(options_);
  object["max_restarts"] = options_.max_restarts;
  // How the leader's host is reached: it cannot know itself.
  object["leader_address"] = client_->server_address();
  client_->set(fmt::format("{}/{}", key("join"), place_), object.dump());
  Failure lost;
  lost.code = static_cast<int>(ExitCode::rank);
  lost.curable = true;
  lost.message = fmt::format("the launcher on {} (process {}) was lost", self.host, getpid());
  client_->set_will(key("end"), to_text(lost, place_));
}

std::optional<Round> Rendezvous::meet(bool run_has_begun) {
  join();
  if (leads()) lead(run_has_begun);
  // The leader gives up in time; its loss ends the connection.
  const auto patience = options_.join_timeout + options_.last_call + kPatience;
  std::optional<std::string> plan;
  std::optional<Failure> end;
  const auto decided = [&] {
    if (const auto why = client_->try_get(fmt::format("{}/{}", key("refused"), place_))) {
      client_->set_will(key("end"), "");
      fail(ExitCode::usage, "{}", *why);
    }
    plan = client_->try_get(key("plan"));
    if (!plan) end = failure_elsewhere();
    // A launcher that is lost now is missed by the attempt that it has joined.
    if (end && end->code != static_cast<int>(ExitCode::stopped)) end.reset();
    return plan || end;
  };
  if (!wait_for(patience, decided)) {
    if (interrupted_()) {
      Failure interruption;
      interruption.code = static_cast<int>(ExitCode::stopped);
      interruption.message = fmt::format("the launcher on {} was interrupted", host_name());
      report(interruption);
      part();
      return std::nullopt;
    }
    fail(ExitCode::rank, "the leading launcher at {} made no decision in time",
         endpoint_text(address_, port_));
  }
  if (end) {
    part();
    throw Error(static_cast<ExitCode>(end->code), end->message);
  }
  const json object = parse(*plan);
  if (const auto problem = field<std::string>(object, "problem"); !problem.empty()) {
    leave({});
    throw Error(static_cast<ExitCode>(field<int>(object, "code")), problem);
  }
  Round round;
  round.max_restarts = field<int>(object, "max_restarts");
  round.run_has_begun = field<bool>(object, "run_has_begun");
  round.own = -1;
  for (const json& entry : field<std::vector<json>>(object, "nodes")) {
    if (field<int>(entry, "place") == place_) round.own = static_cast<int>(round.nodes.size());
    round.nodes.push_back(node_from(entry));
  }
  if (round.own < 0) {
    client_->set_will(key("end"), "");
    fail(ExitCode::rank, "this node came too late: run '{}' has begun with {} nodes",
         options_.run_id, round.nodes.size());
  }
  return round;
}

// Leaves an attempt that never was. The leader stays until the others have learnt why.
void Rendezvous::part() {
  Round all;
  all.nodes.resize(leads() ? static_cast<size_t>(client_->add(key("count"), 0)) : 0);
  leave(all);
}

// Waits for the nodes and writes down who takes part, or why nobody does.
void Rendezvous::lead(bool run_has_begun) {
  auto last_came = Clock::now();
  std::vector<json> entries;
  int64_t come = 0;
  std::string problem;
  const json own = parse(client_->get(fmt::format("{}/{}", key("join"), place_), kPatience));
  const auto full = [&] {
    while (auto next = client_->try_get(fmt::format("{}/{}", key("join"), come))) {
      json entry = parse(*next);
      entry["place"] = come++;
      const std::string unlike = difference(own, entry);
      if (!unlike.empty() && attempt_ > 0) {
        // A newcomer's mistake does not end a run that is at work.
        client_->set(fmt::format("{}/{}", key("refused"), field<int>(entry, "place")), unlike);
        say(unlike + ": the second one is refused");
        continue;
      }
      entries.push_back(std::move(entry));
      last_came = Clock::now();
      if (problem.empty()) problem = unlike;
    }
    if (!problem.empty()) return true;
    const auto count = static_cast<int>(entries.size());
    return count >= options_.max_nodes ||
           (count >= options_.min_nodes && Clock::now() - last_came >= options_.last_call);
  };
  if (!wait_for(options_.join_timeout, full) && interrupted_()) return;
  const auto count = static_cast<int>(entries.size());
  // The leader's ranks come first, the others in the order of coming, or as they say.
  std::stable_sort(entries.begin(), entries.end(), [](const json& a, const json& b) {
    return std::pair(field<int>(a, "wanted_rank"), !field<bool>(a, "leads")) <
           std::pair(field<int>(b, "wanted_rank"), !field<bool>(b, "leads"));
  });
  ExitCode code = ExitCode::rank;
  if (!problem.empty()) {
    code = ExitCode::usage;
  } else if (count < options_.min_nodes) {
    problem = fmt::format("only {} of {} nodes came to {} within {} s", count, options_.min_nodes,
                          endpoint_text(address_, port_), options_.join_timeout.count() / 1000.0);
  } else {
    if (count > options_.max_nodes) entries.resize(static_cast<size_t>(options_.max_nodes));
    problem = contradiction(entries);
    if (!problem.empty()) code = ExitCode::usage;
  }
  if (options_.host_address.empty()) set_own_address(entries);
  client_->set(key("plan"), json{{"problem", problem},
                                 {"code", static_cast<int>(code)},
                                 {"max_restarts", options_.max_restarts},
                                 {"run_has_begun", run_has_begun},
                                 {"nodes", entries}}
                                .dump());
  if (!problem.empty()) wait_for_farewells(count - 1);
}

std::optional<Failure> Rendezvous::report(const Failure& failure) {
  const json first = parse(client_->put_new(key("end"), to_text(failure, place_)));
  if (field<int>(first, "place") == place_) return std::nullopt;
  return failure_from(first);
}

std::optional<Failure> Rendezvous::failure_elsewhere() {
  if (const auto text = client_->try_get(key("end"))) return failure_from(parse(*text));
  return std::nullopt;
}

bool Rendezvous::all_done(const Round& round) {
  const auto nodes = static_cast<int64_t>(round.nodes.size());
  return client_->add(key("done"), std::exchange(done_, true) ? 0 : 1) >= nodes;
}

std::string Rendezvous::decide(const std::string& leaders_reason_to_end) {
  if (leads()) {
    if (leaders_reason_to_end.empty()) client_->set("attempt", std::to_string(attempt_ + 1));
    client_->set(key("next"), leaders_reason_to_end);
  }
  const std::string reason = client_->get(key("next"), options_.grace + kPatience);
  if (reason.empty()) ++attempt_;
  return reason;
}

void Rendezvous::leave(const Round& round) {
  if (!leads()) {
    try {
      client_->set_will(key("end"), "");
      client_->add(key("bye"), 1);
    } catch (const Error& error) {
      // The leader has gone: what was decided is known here, and nobody waits for a farewell.
      if (error.code() != ExitCode::rank) throw;
    }
    return;
  }
  client_->set_will(key("end"), "");
  wait_for_farewells(static_cast<int64_t>(round.nodes.size()) - 1);
}

void Rendezvous::wait_for_farewells(int64_t others) {
  const auto end = Clock::now() + kFarewell;
  while (client_->add(key("bye"), 0) < others && Clock::now() < end) {
    std::this_thread::sleep_for(kPoll);
  }
}

void Rendezvous::tell_news() {
  std::vector<std::string> news;
  {
    const std::lock_guard lock(news_mutex_);
    news.swap(news_);
  }
  for (const std::string& text : news) say(text);
}

StoreClient& Rendezvous::ranks_store() {
  if (!ranks_) {
    RankEnvironment ours;
    ours.run_id = fmt::format("{}.{}", options_.run_id, attempt_);
    StoreOptions options = store_options(ours.store_prefix());
    options.connect_timeout = std::min<milliseconds>(options.connect_timeout, kFarewell);
    // The connection that is there says at once that the leader has ended, and its store with it.
    const auto check_leader = [&] { client_->try_get("attempt"); };
    check_leader();
    try {
      ranks_ = std::make_unique<StoreClient>(std::move(options));
    } catch (const Error&) {
      check_leader();
      throw;
    }
  }
  return *ranks_;
}

}  // namespace dltrain

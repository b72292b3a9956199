// The only file that includes Gloo (0.5 of 2022-05 and later).
#include "comm/gloo_transport.h"

#include <csignal>
#include <mutex>
#include <numeric>
#include <string_view>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "base/error.h"
#include "base/signals.h"
#include "comm/link_hub.h"
#include "comm/links.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// Gloo begins its messages with "[file:line] ", which says nothing to a user.
std::string_view plain(std::string_view message) {
  if (message.starts_with('[')) {
    if (const size_t end = message.find("] "); end != message.npos) return message.substr(end + 2);
  }
  return message;
}

void ignore_sigpipe() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

// Gloo's view of our store.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(StoreClient& client, const GlooOptions& options)
      : client_(client),
        prefix_("gloo/" + options.group + "/"),
        timeout_(options.connect_timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    client_.set(prefix_ + key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = client_.get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    std::vector<std::string> names;
    for (const std::string& key : keys) names.push_back(prefix_ + key);
    client_.wait(names, timeout);
  }

 private:
  StoreClient& client_;
  std::string prefix_;
  milliseconds timeout_;
};

class GlooChannel : public Channel {
 public:
  GlooChannel(gloo::Context& context, int peer, void* data, size_t bytes, milliseconds timeout)
      : buffer_(context.createUnboundBuffer(data, bytes)), peer_(peer), timeout_(timeout) {}

  void send(uint64_t slot, size_t offset, size_t bytes) override {
    guarded([&] { buffer_->send(peer_, slot, offset, bytes); });
  }
  void receive(uint64_t slot, size_t offset, size_t bytes) override {
    guarded([&] { buffer_->recv(peer_, slot, offset, bytes); });
  }
  void wait_sent() override {
    guarded([&] { buffer_->waitSend(nullptr, timeout_); });
  }
  void wait_received() override {
    guarded([&] { buffer_->waitRecv(nullptr, timeout_); });
  }

 private:
  template <typename F>
  void guarded(F&& call) {
    try {
      call();
    } catch (const std::exception& e) {
      const std::string_view reason = plain(e.what());
      if (reason.find("Timed out") == reason.npos) {
        fail_lost(peer_, reason);
      }
      fail_silent(peer_, timeout_);
    }
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  int peer_;
  milliseconds timeout_;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(StoreClient& store, const GlooOptions& options);
  ~GlooTransport() override { close(); }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::unique_ptr<Channel> open(int peer, void* data, size_t bytes) override {
    return std::make_unique<GlooChannel>(*context_, peer, data, bytes, options_.timeout);
  }
  Channel& cached(int peer, void* data, size_t bytes) override {
    return cache_.get(peer, data, bytes, [&] { return open(peer, data, bytes); });
  }
  void exchange(uint64_t slot, std::span<const Letter> letters) override {
    links_->exchange(slot, letters);
  }
  std::shared_ptr<Links> link(std::span<const int> ranks, int number) override;
  void drop_unused() override { cache_.drop_unused(); }
  void close() override;

 private:
  void share_cards();

  GlooOptions options_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  ChannelCache cache_;
  std::unique_ptr<LinkHub> hub_;
  std::vector<LinkCard> cards_;   // [rank]
  std::shared_ptr<Links> links_;  // of all ranks, their part number 0

  std::mutex mutex_;  // of what follows
  bool closed_ = false;
  std::vector<std::weak_ptr<Links>> all_links_;
};

GlooTransport::GlooTransport(StoreClient& store, const GlooOptions& options) : options_(options) {
  ignore_sigpipe();
  // Gloo's connections and links, as many for parts, and those of the store that rank 0 may serve.
  allow_descriptors(6 * static_cast<size_t>(options.size));
  const std::string presence = "gloo/" + options.group + "/here/";
  store.set(presence + std::to_string(options.rank), "");
  gloo::transport::tcp::attr attributes;
  attributes.hostname = options.address.empty() ? store.local_address() : options.address;
  try {
    std::shared_ptr<gloo::transport::Device> device = [&] {
      BlockSignals block;  // for Gloo's thread
      return gloo::transport::tcp::CreateDevice(attributes);
    }();
    context_ = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context_->setTimeout(options.connect_timeout);
    GlooStore adapter(store, options);
    context_->connectFullMesh(adapter, device);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error != nullptr && error->code() == ExitCode::stopped) throw;
    std::string missing;
    for (int i = 0; i < options.size; ++i) {
      if (!store.try_get(presence + std::to_string(i))) missing += fmt::format(" {}", i);
    }
    const std::string who =
        fmt::format("rank {} of {} (group '{}')", options.rank, options.size, options.group);
    if (missing.empty()) {
      fail(ExitCode::rank, "{} cannot connect to its peers: {}", who, plain(e.what()));
    }
    fail(ExitCode::rank, "{} waited {} ms for its peers; these ranks never came:{}", who,
         options.connect_timeout.count(), missing);
  }
  hub_ = std::make_unique<LinkHub>(attributes.hostname);
  share_cards();
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  links_ = link(all, 0);
}

std::shared_ptr<Links> GlooTransport::link(std::span<const int> ranks, int number) {
  const auto links = std::make_shared<Links>(
      hub_->connect(cards_, rank(), ranks, number, Clock::now() + options_.connect_timeout),
      std::vector<int>(ranks.begin(), ranks.end()), options_.timeout);
  std::lock_guard lock(mutex_);
  if (closed_) links->close();
  std::erase_if(all_links_, [](const std::weak_ptr<Links>& one) { return one.expired(); });
  all_links_.push_back(links);
  return links;
}

void GlooTransport::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (const std::weak_ptr<Links>& one : all_links_) {
      if (const std::shared_ptr<Links> links = one.lock()) links->close();
    }
  }
  context_->closeConnections();
}

// Over Gloo's connections, which lead to the right ranks.
void GlooTransport::share_cards() {
  constexpr uint64_t kSlot = 1;  // those of messages are even
  cards_.resize(static_cast<size_t>(size()));
  LinkCard& own = cards_[static_cast<size_t>(rank())];
  own = hub_->card();
  std::vector<std::unique_ptr<GlooChannel>> from, to;
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto channel = [&](LinkCard& card) {
      return std::make_unique<GlooChannel>(*context_, p, &card, sizeof card,
                                           options_.connect_timeout);
    };
    from.push_back(channel(cards_[static_cast<size_t>(p)]));
    from.back()->receive(kSlot, 0, sizeof(LinkCard));
    to.push_back(channel(own));
    to.back()->send(kSlot, 0, sizeof(LinkCard));
  }
  for (const auto& channel : from) channel->wait_received();
  for (const auto& channel : to) channel->wait_sent();
  for (LinkCard& card : cards_) card.host.back() = '\0';
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(StoreClient& store, const GlooOptions& options) {
  return std::make_unique<GlooTransport>(store, options);
}

}  // namespace dltrain

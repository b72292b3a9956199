// Messages between the ranks of one group: what the collective algorithms are written on. Gloo is
// one implementation (gloo_transport.cpp); the algorithms (exchange.h) know nothing of it.
//
// A Channel is a piece of memory bound to one peer. Sends and receives are posted and return at
// once; each completed one is taken by one wait. Messages of equal slot between two ranks match in
// the order of posting; both sides must give the same number of bytes. Letters are messages to a
// peer and from it at the same time, delivered by who calls (links.h).
//
// Errors: every call throws Error(rank) naming the peer when it is lost or does not answer within
// the timeout. After that the whole transport is dead.
//
// Threads: rank, size, open and close by any; cached, exchange and drop_unused by one at a time;
// link by one, beside them. A transport of some of the ranks (subgroup_transport.h) opens channels
// of the whole one beside it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace dltrain {

class Channel {
 public:
  virtual ~Channel() = default;
  virtual void send(uint64_t slot, size_t offset, size_t bytes) = 0;
  virtual void receive(uint64_t slot, size_t offset, size_t bytes) = 0;
  // Blocks until one more posted send (receive) is complete.
  virtual void wait_sent() = 0;
  virtual void wait_received() = 0;
};

class Links;

struct Letter {
  int peer;
  const void* out;
  size_t out_bytes;
  void* in;
  size_t in_bytes;
};

// A peer has come with another operation than this rank: both have a bug, and this rank knows it at
// first hand.
class OtherOperation : public Error {
 public:
  explicit OtherOperation(int peer);
};

// How every loss of a peer is told.
[[noreturn]] void fail_lost(int peer, std::string_view reason);
[[noreturn]] void fail_silent(int peer, std::chrono::milliseconds timeout);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What a peer is called in messages and by observers: its rank among all.
  virtual int name_of(int peer) const { return peer; }
  // Who this rank is, for messages: "rank 1 of 4".
  virtual std::string self() const {
    return "rank " + std::to_string(rank()) + " of " + std::to_string(size());
  }
  // The memory must outlive the channel's posted messages; it is not owned. `data` is only written
  // to by receives.
  virtual std::unique_ptr<Channel> open(int peer, void* data, size_t bytes) = 0;
  // A channel that stays open for later calls with the same arguments, so that replayed steps open
  // none. Valid until the next call of drop_unused().
  virtual Channel& cached(int peer, void* data, size_t bytes) = 0;
  // Sends and receives the letters, at most one for each peer, and returns when that is done. All
  // ranks of the group call it in the same order with the same slots, or all of them throw.
  virtual void exchange(uint64_t slot, std::span<const Letter> letters) = 0;
  // Connects some ranks (ascending, this one among them) for exchanges of their own, under a number
  // that no other part of this transport has. close() of this transport breaks them too.
  virtual std::shared_ptr<Links> link(std::span<const int> ranks, int number) = 0;
  // Forgets cached channels when there are many; called between operations.
  virtual void drop_unused() = 0;
  // Breaks all connections, so that the peers notice at once.
  virtual void close() = 0;
};

// The channels that a transport keeps open, by peer and memory.
class ChannelCache {
 public:
  template <typename Open>
  Channel& get(int peer, void* data, size_t bytes, const Open& open) {
    std::unique_ptr<Channel>& channel = channels_[Key{data, bytes, peer}];
    if (!channel) channel = open();
    return *channel;
  }
  void drop_unused() {
    if (channels_.size() > kMost) channels_.clear();
  }

 private:
  static constexpr size_t kMost = 16384;
  struct Key {
    void* data;
    size_t bytes;
    int peer;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const {
      return (reinterpret_cast<size_t>(k.data) * 31 + k.bytes) * 31 + static_cast<size_t>(k.peer);
    }
  };
  std::unordered_map<Key, std::unique_ptr<Channel>, Hash> channels_;
};

}  // namespace dltrain

// Where the connections of Links are made: every rank listens on a port of its own, tells all
// others where (a LinkCard), and is connected to by the higher ranks of each group. A random token
// on the card keeps strangers out.
//
// Errors: Error(rank) naming the peer that cannot be reached or does not come. Threads: one at a
// time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/socket.h"

namespace dltrain {

// Plain bytes, for a message.
struct LinkCard {
  std::array<char, 256> host{};  // ends with a zero
  uint32_t port = 0;
  std::array<uint32_t, 4> token{};
};

class LinkHub {
 public:
  // Listens on this host's address, which the peers can reach.
  explicit LinkHub(const std::string& host);
  const LinkCard& card() const { return card_; }

  // Connects the ranks of a group with each other: all of them call it. `cards` are of all ranks,
  // `rank` this one's place there; `ranks` ascend; `group` numbers the group, the same on all of
  // them. Returns a non-blocking socket for each of `ranks`, none at the own place.
  std::vector<FileDescriptor> connect(std::span<const LinkCard> cards, int rank,
                                      std::span<const int> ranks, int group,
                                      Clock::time_point deadline);

 private:
  // The first bytes on a connection.
  struct Greeting {
    std::array<uint32_t, 4> token;
    uint32_t rank, group;
  };
  struct Guest {
    FileDescriptor socket;
    Greeting greeting;
    size_t received = 0;
  };
  FileDescriptor call(const LinkCard& card, int peer, int rank, int group,
                      Clock::time_point deadline) const;
  FileDescriptor take(int peer, int group, Clock::time_point deadline);
  void receive_guests(int timeout_ms);
  bool listen_to(Guest& guest);

  FileDescriptor listener_;
  LinkCard card_;
  std::vector<Guest> guests_;  // who have not finished their greeting
  // Connected and not yet taken, by group and rank: a group may meet earlier on its other ranks.
  std::map<std::pair<uint32_t, uint32_t>, FileDescriptor> waiting_;
};

}  // namespace dltrain

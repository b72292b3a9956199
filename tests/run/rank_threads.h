// Ranks as threads of one process: short runs under every layout, without processes or sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/reduce.h"
#include "device/collectives.h"
#include "run/rank_board.h"

namespace dltrain {

// Sums are those of comm/reduce.h, as between processes on CPUs.
//
// An operation does its work as late as it may, in wait(), so that a wait that is missing or stands
// in the wrong place is seen: from the issue on the output is NaN (-1 in integers) until then, also
// where it is the input. wait() throws Error(internal) where input or output has been written
// meanwhile, as memory that was given to something else is, or where nothing is to be waited for.
class ThreadCollectives final : public Collectives {
 public:
  ThreadCollectives(RankBoard& board, int rank)
      : board_(board),
        rank_(rank),
        ranks_(static_cast<size_t>(board.size())),
        tally_(std::make_shared<Tally>()) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  int rank() const override { return rank_; }
  int size() const override { return board_.size(); }

  void wait(Ticket ticket, Stream&) override { complete(ticket); }
  void barrier() override { board_.meet(); }
  std::unique_ptr<Collectives> split(std::span<const int> ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    // Groups of the same ranks do not meet: a number that is no rank tells them apart.
    std::vector<int> name(ranks.begin(), ranks.end());
    name.push_back(-++splits_[name]);
    auto part = std::make_unique<ThreadCollectives>(board_.of(name, static_cast<int>(ranks.size())),
                                                    static_cast<int>(own));
    part->ranks_.assign(ranks.begin(), ranks.end());
    part->tally_ = tally_;
    return part;
  }

  // Bytes that this rank sent to each rank of the whole group, in its parts too.
  std::map<int, size_t>& sent() { return tally_->sent; }
  // Descriptions of operations that were issued here or in its parts and not waited for.
  const std::multiset<std::string>& under_way() const { return tally_->under_way; }

 private:
  struct Tally {
    std::map<int, size_t> sent;
    std::multiset<std::string> under_way;
  };
  struct UnderWay {
    CollectiveCall call;
    RankBoard* board = nullptr;
    uint64_t number = 0;                   // of the operation on the board
    std::vector<std::byte> input, output;  // as they must still be at the wait
  };

  static const void* input_of(const CollectiveCall& call) {
    return call.input != nullptr ? call.input : call.output;
  }
  static std::vector<std::byte> copy_of(const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    return {begin, begin + bytes};
  }
  static bool is(const void* data, const std::vector<std::byte>& bytes) {
    return bytes.empty() || std::memcmp(data, bytes.data(), bytes.size()) == 0;
  }

  Ticket queue(const CollectiveCall& call, Stream&) override {
    count_sent(call);
    const CollectiveExtent extent = extent_of(call, rank_, size());
    // In a broadcast, every rank contributes data.
    const size_t input_bytes = std::max(extent.input, call.count) * dtype_size(call.dtype);
    const size_t output_bytes =
        call.output == nullptr ? 0 : std::max(extent.output, call.count) * dtype_size(call.dtype);
    const void* input = input_of(call);
    auto data = std::make_shared<const std::vector<std::byte>>(copy_of(input, input_bytes));
    UnderWay its{.call = call, .board = &board_, .input = {}, .output = {}};
    if (call.is_between_two()) {
      // The name of no part ends with a rank.
      its.board = &board_.of(std::array{std::max(rank_, call.peer), std::min(rank_, call.peer)}, 2);
      its.number = ++between_[call.peer];
      CollectiveCall shared = call;
      shared.kind = CollectiveKind::send;
      shared.root = sender_of(call);
      its.board->lay_out(its.number, rank_ < call.peer ? 1 : 0, shared, std::move(data));
    } else {
      its.number = ++among_all_;
      board_.lay_out(its.number, rank_, call, std::move(data));
    }
    if (extent.output > 0) std::memset(call.output, 0xff, output_bytes);
    its.input = copy_of(input, input_bytes);
    its.output = copy_of(call.output, output_bytes);
    under_way_[++issued_] = std::move(its);
    tally_->under_way.insert(describe(call));
    return issued_;
  }

  void complete(Ticket ticket) {
    const auto found = under_way_.find(ticket);
    check_internal(found != under_way_.end(), "a wait for number {} of {}, which is not under way",
                   ticket, issued_);
    const UnderWay its = std::move(found->second);
    under_way_.erase(found);
    const std::string what = describe(its.call);
    tally_->under_way.erase(tally_->under_way.find(what));
    check_internal(is(input_of(its.call), its.input), "the input of {} was written on the way",
                   what);
    check_internal(is(its.call.output, its.output), "the output of {} was written on the way",
                   what);
    finish(its.call, its.board->take(its.number));
  }

  // The place of the sender where two ranks meet.
  int sender_of(const CollectiveCall& call) const {
    return (call.kind == CollectiveKind::send) == (rank_ > call.peer) ? 0 : 1;
  }

  void finish(const CollectiveCall& call, const std::vector<RankBoard::Data>& data) const {
    const size_t bytes = call.bytes();
    const bool scatters = call.kind == CollectiveKind::reduce_scatter;
    std::vector<const void*> parts;
    for (const RankBoard::Data& all : data) {
      parts.push_back(all->data() + (scatters ? static_cast<size_t>(rank_) * bytes : 0));
    }
    if (call.kind == CollectiveKind::send) return;
    if (call.kind == CollectiveKind::receive) {
      std::memcpy(call.output, parts[static_cast<size_t>(sender_of(call))], bytes);
    } else if (call.kind == CollectiveKind::broadcast) {
      std::memcpy(call.output, parts[static_cast<size_t>(call.root)], bytes);
    } else if (call.kind == CollectiveKind::all_to_all) {
      // Rows that are not in use stay NaN.
      for (size_t r = 0; r < parts.size(); ++r) {
        const size_t used =
            call.received_rows == nullptr
                ? bytes
                : static_cast<size_t>(call.received_rows[r]) * call.row * dtype_size(call.dtype);
        std::memcpy(static_cast<std::byte*>(call.output) + r * bytes,
                    static_cast<const std::byte*>(parts[r]) + static_cast<size_t>(rank_) * bytes,
                    used);
      }
    } else if (call.kind == CollectiveKind::all_gather) {
      for (size_t r = 0; r < parts.size(); ++r) {
        std::memcpy(static_cast<std::byte*>(call.output) + r * bytes, parts[r], bytes);
      }
    } else {
      reduce_parts(parts, call.output, call.count, call.dtype, call.op);
    }
  }

  // A sum takes its way twice, in parts.
  void count_sent(const CollectiveCall& call) {
    if (call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::receive) return;
    const size_t bytes = call.bytes();
    const bool sums = call.kind == CollectiveKind::all_reduce;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_ || (call.is_between_two() && peer != call.peer)) continue;
      tally_->sent[ranks_[static_cast<size_t>(peer)]] += sums ? 2 * bytes / ranks_.size() : bytes;
    }
  }

  RankBoard& board_;
  int rank_;
  std::vector<int> ranks_;  // what the members are called in the whole group
  std::shared_ptr<Tally> tally_;
  Ticket issued_ = 0;
  uint64_t among_all_ = 0;           // operations of all ranks of the group
  std::map<int, uint64_t> between_;  // by rank: operations of this rank and that one
  std::map<Ticket, UnderWay> under_way_;
  std::map<std::vector<int>, int> splits_;
};

// Calls body(collectives of the rank) as so many ranks at once. Throws what the first rank threw
// that did not only learn of another one's failure; Error(internal) where an operation was never
// waited for.
inline void run_rank_threads(int size, const std::function<void(ThreadCollectives&)>& body) {
  RankBoard board(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::exception_ptr learnt;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCollectives collectives(board, rank);
      std::exception_ptr& own = errors[static_cast<size_t>(rank)];
      try {
        body(collectives);
        const auto& left = collectives.under_way();
        check_internal(left.empty(), "{} operations were never waited for, as {}", left.size(),
                       left.empty() ? "" : *left.begin());
        return;
      } catch (const Error& error) {
        own = std::current_exception();
        if (error.code() == ExitCode::rank) {
          const std::lock_guard lock(mutex);
          learnt = std::exchange(own, nullptr);
        }
      } catch (...) {
        own = std::current_exception();
      }
      board.break_up();
    });
  }
  for (std::thread& thread : threads) thread.join();
  errors.push_back(learnt);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace dltrain

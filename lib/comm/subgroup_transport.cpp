#include "comm/subgroup_transport.h"

#include <algorithm>

#include "base/error.h"
#include "comm/links.h"

namespace dltrain {
namespace {

class SubgroupTransport final : public Transport {
 public:
  SubgroupTransport(Transport& whole, std::vector<int> ranks, int number)
      : whole_(whole), ranks_(std::move(ranks)) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), whole.rank());
    check_internal(own != ranks_.end() && std::is_sorted(ranks_.begin(), ranks_.end()) &&
                       ranks_.front() >= 0 && ranks_.back() < whole.size(),
                   "rank {} makes a group that is none of its own", whole.rank());
    rank_ = static_cast<int>(own - ranks_.begin());
    links_ = whole.link(ranks_, number);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  int name_of(int peer) const override { return ranks_[static_cast<size_t>(peer)]; }
  std::string self() const override {
    return fmt::format("{} (among ranks {})", whole_.self(), fmt::join(ranks_, ", "));
  }
  std::unique_ptr<Channel> open(int peer, void* data, size_t bytes) override {
    return whole_.open(ranks_[static_cast<size_t>(peer)], data, bytes);
  }
  Channel& cached(int peer, void* data, size_t bytes) override {
    return cache_.get(peer, data, bytes, [&] { return open(peer, data, bytes); });
  }
  void exchange(uint64_t slot, std::span<const Letter> letters) override {
    links_->exchange(slot, letters);
  }
  std::shared_ptr<Links> link(std::span<const int>, int) override {
    check_internal(false, "a part of a group has no parts");
    return nullptr;
  }
  void drop_unused() override { cache_.drop_unused(); }
  void close() override { whole_.close(); }

 private:
  Transport& whole_;
  std::vector<int> ranks_;
  int rank_ = 0;
  std::shared_ptr<Links> links_;
  ChannelCache cache_;
};

}  // namespace

std::unique_ptr<Transport> make_subgroup(Transport& whole, std::vector<int> ranks, int number) {
  return std::make_unique<SubgroupTransport>(whole, std::move(ranks), number);
}

}  // namespace dltrain

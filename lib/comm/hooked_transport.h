// A Transport with a hook at the beginning of every operation: how tests and benchmarks hold or
// count messages.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "comm/links.h"
#include "comm/transport.h"

namespace dltrain {

class HookedTransport final : public Transport {
 public:
  // `before` is called by the thread that runs the operation, before its first message.
  HookedTransport(std::unique_ptr<Transport> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int name_of(int peer) const override { return inner_->name_of(peer); }
  std::string self() const override { return inner_->self(); }
  std::unique_ptr<Channel> open(int peer, void* data, size_t bytes) override {
    return inner_->open(peer, data, bytes);
  }
  Channel& cached(int peer, void* data, size_t bytes) override {
    return inner_->cached(peer, data, bytes);
  }
  void exchange(uint64_t slot, std::span<const Letter> letters) override {
    inner_->exchange(slot, letters);
  }
  std::shared_ptr<Links> link(std::span<const int> ranks, int number) override {
    return inner_->link(ranks, number);
  }
  void drop_unused() override {  // once an operation
    before_();
    inner_->drop_unused();
  }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::function<void()> before_;
};

}  // namespace dltrain

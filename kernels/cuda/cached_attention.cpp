// Kernel class of cached_attention.
#include "cuda/cached_attention.h"

#include "cuda/attention_call.h"
#include "cuda/makers.h"
#include "ops/cached_attention.h"

namespace dltrain {
namespace {

class CachedAttention final : public Kernel {
 public:
  CachedAttention(const CachedAttentionCall& call, size_t first) : call_(call), first_(first) {}
  void bind(const Bindings& b) override {
    const bool packed = first_ == 1;
    data_ = {.q = b.inputs[0],
             .k = b.inputs[packed ? 0 : 1],
             .v = b.inputs[packed ? 0 : 2],
             .keys = b.inputs[first_],
             .values = b.inputs[first_ + 1],
             .y = b.outputs[0],
             .positions = static_cast<const int32_t*>(b.inputs[first_ + 2]),
             .counts = static_cast<const int32_t*>(b.inputs[first_ + 3]),
             .slots = static_cast<const int32_t*>(b.inputs[first_ + 4])};
  }
  void run(Stream& stream) override { launch_cached_attention(call_, data_, stream.native()); }

 private:
  CachedAttentionCall call_;
  size_t first_;  // of the caches among the inputs
  CachedAttentionData data_;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_cached_attention(const KernelRequest& request) {
  const CachedAttentionSizes sizes = cached_attention_sizes(request.inputs, request.attributes);
  const size_t first = cache_input(request.inputs);
  const CachedAttentionCall call{
      .tokens = attention_call(sizes.tokens, request.inputs[0].dtype, request.attributes),
      .capacity = sizes.capacity,
      .block = kCacheBlock,
      .width = sizes.width()};
  if (call.tokens.head_dim > AttentionCall::kMostHeadDim ||
      call.tokens.samples * call.tokens.heads * call.tokens.queries >= (int64_t{1} << 31)) {
    return nullptr;
  }
  return std::make_unique<CachedAttention>(call, first);
}

}  // namespace dltrain

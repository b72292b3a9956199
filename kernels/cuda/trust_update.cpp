// Kernel classes of lars_update and lamb_update.
#include "cuda/trust_update.h"

#include "cuda/makers.h"
#include "cuda/update_table.h"

namespace dltrain {
namespace {

class TrustUpdate : public Kernel {
 public:
  TrustUpdate(const KernelRequest& request, size_t roles)
      : groups_(request.attributes), chunks_(request, 1, roles), tensors_(request.device) {}

  size_t workspace_bytes() const override {
    return (static_cast<size_t>(chunks_.chunks()) + chunks_.tensors()) * sizeof(NormPair);
  }
  void bind(const Bindings& bindings) override {
    std::vector<TensorChunks> tensors;
    int64_t first = 0;
    for (size_t i = 0; i < chunks_.tensors(); ++i) {
      tensors.push_back({first, chunks_.chunks_of(i)});
      first += tensors.back().count;
    }
    auto* scratch = static_cast<NormPair*>(bindings.workspace);
    tables_ = {.chunks = chunks_.bind(bindings, &groups_),
               .tensors = tensors_.upload(tensors),
               .tensor_count = static_cast<int64_t>(tensors.size()),
               .sums = scratch,
               .norms = scratch + chunks_.chunks()};
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
  }

 protected:
  UpdateGroups groups_;
  ChunkTable chunks_;
  DeviceTable<TensorChunks> tensors_;
  TrustTables tables_;
  const StepState* state_ = nullptr;
};

template <typename Rule>
class LarsUpdate final : public TrustUpdate {
 public:
  LarsUpdate(const KernelRequest& request, const Rule& rule)
      : TrustUpdate(request, Rule::kMoments + 2),
        rule_(rule),
        trust_(lars_trust(request.attributes)) {}
  void run(Stream& stream) override {
    launch_lars_update(tables_, rule_, trust_, state_, stream.native());
  }

 private:
  Rule rule_;
  LarsTrust trust_;
};

class LambUpdate final : public TrustUpdate {
 public:
  explicit LambUpdate(const KernelRequest& request)
      : TrustUpdate(request, 4), rule_(lamb_rule(request.attributes)) {}
  void run(Stream& stream) override { launch_lamb_update(tables_, rule_, state_, stream.native()); }

 private:
  LambRule rule_;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_lars_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  const double momentum = request.attributes.number("momentum");
  if (momentum == 0) {
    using Plain = SgdRule<Momentum::none>;
    return std::make_unique<LarsUpdate<Plain>>(request, Plain{});
  }
  using WithMomentum = SgdRule<Momentum::plain>;
  return std::make_unique<LarsUpdate<WithMomentum>>(request, WithMomentum{momentum, 0});
}

std::unique_ptr<Kernel> make_cuda_lamb_update(const KernelRequest& request) {
  return is_wide_update(request) ? std::make_unique<LambUpdate>(request) : nullptr;
}

}  // namespace dltrain

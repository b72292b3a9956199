// Kernel classes of embedding and its gradient.
#include "cuda/embedding.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

constexpr int64_t kMost = (int64_t{1} << 31) - 2;  // ids and rows: places are 32 bits wide

class Embedding final : public Kernel {
 public:
  explicit Embedding(const KernelRequest& request)
      : call_{.dtype = request.inputs[1].dtype,
              .ids = request.inputs[0].shape.elements(),
              .rows = request.inputs[1].shape[0],
              .columns = request.inputs[1].shape[1]} {}
  void bind(const Bindings& b) override {
    ids_ = static_cast<const int32_t*>(b.inputs[0]);
    weight_ = b.inputs[1];
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override { launch_embedding(call_, ids_, weight_, y_, stream.native()); }

 private:
  EmbeddingCall call_;
  const int32_t* ids_ = nullptr;
  const void* weight_ = nullptr;
  void* y_ = nullptr;
};

class EmbeddingBackward final : public Kernel {
 public:
  explicit EmbeddingBackward(const EmbeddingCall& call) : call_(call) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(embedding_workspace_elements(call_)) * sizeof(int32_t);
  }
  void bind(const Bindings& b) override {
    ids_ = static_cast<const int32_t*>(b.inputs[0]);
    dy_ = b.inputs[1];
    dweight_ = b.outputs[0];
    workspace_ = static_cast<int32_t*>(b.workspace);
  }
  void run(Stream& stream) override {
    launch_embedding_backward(call_, ids_, dy_, dweight_, workspace_, stream.native());
  }

 private:
  EmbeddingCall call_;
  const int32_t* ids_ = nullptr;
  const void* dy_ = nullptr;
  void* dweight_ = nullptr;
  int32_t* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_embedding(const KernelRequest& request) {
  return std::make_unique<Embedding>(request);
}

std::unique_ptr<Kernel> make_cuda_embedding_backward(const KernelRequest& request) {
  const EmbeddingCall call{.dtype = request.inputs[1].dtype,
                           .ids = request.inputs[0].shape.elements(),
                           .rows = request.outputs[0].shape[0],
                           .columns = request.outputs[0].shape[1],
                           .padding_idx = request.attributes.integer("padding_idx", -1),
                           .accumulate = request.accumulate};
  if (call.ids > kMost || call.rows > kMost) return nullptr;
  return std::make_unique<EmbeddingBackward>(call);
}

}  // namespace dltrain

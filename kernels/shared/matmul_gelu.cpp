#include "shared/matmul_gelu.h"

#include "shared/kernel_part.h"

namespace dltrain {

std::unique_ptr<Kernel> make_matmul_gelu_of_parts(const KernelRequest& r, const Engine& engine) {
  const TensorSpec &y = r.outputs[0], &x = r.outputs[1];
  WorkspaceParts scratch;
  KernelPart product(
      engine, r,
      {.op = "matmul",
       .inputs = {r.inputs[0], r.inputs[1], r.inputs.size() > 2 ? r.inputs[2] : absent_spec()},
       .outputs = {x},
       .attributes = r.attributes},
      scratch);
  KernelPart gelu(engine, r, {.op = "gelu_tanh", .inputs = {x}, .outputs = {y}}, scratch);
  return make_of_parts(
      [product = std::move(product), gelu = std::move(gelu)](const Bindings& b) {
        auto* workspace = static_cast<std::byte*>(b.workspace);
        std::vector<BoundCall> calls;
        calls.push_back(product.bound(
            workspace, {b.inputs[0], b.inputs[1], optional_address(b.inputs, 2)}, {b.outputs[1]}));
        calls.push_back(gelu.bound(workspace, {b.outputs[1]}, {b.outputs[0]}));
        return calls;
      },
      scratch.total());
}

std::unique_ptr<Kernel> make_matmul_gelu_backward_of_parts(const KernelRequest& r,
                                                           const Engine& engine) {
  const TensorSpec& dx = r.outputs[0];
  WorkspaceParts scratch;
  KernelPart product(engine, r,
                     {.op = "matmul",
                      .inputs = {r.inputs[0], r.inputs[1]},
                      .outputs = {dx},
                      .attributes = r.attributes},
                     scratch);
  KernelPart gelu(engine, r,
                  {.op = "gelu_tanh_backward", .inputs = {r.inputs[2], dx}, .outputs = {dx}},
                  scratch);
  return make_of_parts(
      [product = std::move(product), gelu = std::move(gelu)](const Bindings& b) {
        auto* workspace = static_cast<std::byte*>(b.workspace);
        void* out = b.outputs[0];  // the product, then in its place dx
        std::vector<BoundCall> calls;
        calls.push_back(product.bound(workspace, {b.inputs[0], b.inputs[1]}, {out}));
        calls.push_back(gelu.bound(workspace, {b.inputs[2], out}, {out}));
        return calls;
      },
      scratch.total());
}

}  // namespace dltrain

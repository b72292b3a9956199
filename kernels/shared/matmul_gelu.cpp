#include "shared/matmul_gelu.h"

#include "shared/kernel_part.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// The product, then GELU, or in the backward its derivative in place.
std::unique_ptr<Kernel> make_product_and(const KernelRequest& r, const Engine& engine,
                                         const KernelPart::Request& product,
                                         const KernelPart::Request& then, bool backward) {
  WorkspaceParts scratch;
  KernelPart of_product(engine, r, product, scratch), of_gelu(engine, r, then, scratch);
  return make_prepared_kernel(
      [backward, first = std::move(of_product), second = std::move(of_gelu)](const Bindings& b) {
        auto* workspace = static_cast<std::byte*>(b.workspace);
        void *a = b.inputs[0], *w = b.inputs[1], *third = optional_address(b.inputs, 2);
        std::vector<BoundCall> calls;
        if (backward) {
          calls.push_back(first.bound(workspace, {a, w}, {b.outputs[0]}));
          calls.push_back(second.bound(workspace, {third, b.outputs[0]}, {b.outputs[0]}));
        } else {
          calls.push_back(first.bound(workspace, {a, w, third}, {b.outputs[1]}));
          calls.push_back(second.bound(workspace, {b.outputs[1]}, {b.outputs[0]}));
        }
        return calls;
      },
      [](const std::vector<BoundCall>& calls, const Bindings&, Stream& stream) {
        for (const BoundCall& call : calls) call.run(stream);
      },
      scratch.total());
}

}  // namespace

std::unique_ptr<Kernel> make_matmul_gelu_of_parts(const KernelRequest& r, const Engine& engine) {
  const TensorSpec bias = r.inputs.size() > 2 ? r.inputs[2] : absent_spec();
  return make_product_and(r, engine,
                          {.op = "matmul",
                           .inputs = {r.inputs[0], r.inputs[1], bias},
                           .outputs = {r.outputs[1]},
                           .attributes = r.attributes},
                          {.op = "gelu_tanh", .inputs = {r.outputs[1]}, .outputs = {r.outputs[0]}},
                          false);
}

std::unique_ptr<Kernel> make_matmul_gelu_backward_of_parts(const KernelRequest& r,
                                                           const Engine& engine) {
  const TensorSpec& dx = r.outputs[0];
  return make_product_and(
      r, engine,
      {.op = "matmul",
       .inputs = {r.inputs[0], r.inputs[1]},
       .outputs = {dx},
       .attributes = r.attributes},
      {.op = "gelu_tanh_backward", .inputs = {r.inputs[2], dx}, .outputs = {dx}}, true);
}

}  // namespace dltrain

#include "shared/fp8_matmul.h"

#include "ops/rules.h"
#include "shared/kernel_part.h"

namespace dltrain {
namespace {

KernelPart::Request values_of(const KernelRequest& r, size_t operand, DType dtype) {
  Attributes attributes{{"format", r.attributes.text(operand == 0 ? "format_a" : "format_b")},
                        {"output_dtype", std::string(dtype_name(dtype))}};
  const auto block = r.attributes.integers(operand == 0 ? "block_a" : "block_b");
  if (!block.empty()) attributes.set("block", block);
  return {.op = "fp8_values",
          .inputs = {r.inputs[operand], r.inputs[operand + 2]},
          .outputs = {{r.inputs[operand].shape, dtype}},
          .attributes = attributes};
}

TensorSpec bias_of(const KernelRequest& r) {
  return r.inputs.size() > 4 ? r.inputs[4] : absent_spec();
}

// `dtype`: of the values.
std::unique_ptr<Kernel> make(const KernelRequest& r, const Engine& engine, DType dtype) {
  const TensorSpec bias = bias_of(r), y = r.outputs[0];
  if (r.accumulate && is_low_precision(y.dtype)) return nullptr;  // sums are f32
  WorkspaceParts scratch;
  const size_t a_at = scratch.add(r.inputs[0].shape.elements(), dtype),
               b_at = scratch.add(r.inputs[1].shape.elements(), dtype);
  KernelPart a(engine, r, values_of(r, 0, dtype), scratch),
      b(engine, r, values_of(r, 1, dtype), scratch);
  KernelPart product(
      engine, r,
      {.op = "matmul",
       .inputs = {{r.inputs[0].shape, dtype}, {r.inputs[1].shape, dtype}, bias},
       .outputs = {y},
       .attributes = {{"transpose_b", true}, {"output_dtype", std::string(dtype_name(y.dtype))}},
       .accumulate = r.accumulate},
      scratch);
  return make_of_parts(
      [=, a = std::move(a), b = std::move(b), product = std::move(product)](const Bindings& on) {
        auto* workspace = static_cast<std::byte*>(on.workspace);
        std::byte *values_a = workspace + a_at, *values_b = workspace + b_at;
        std::vector<BoundCall> calls;
        calls.push_back(a.bound(workspace, {on.inputs[0], on.inputs[2]}, {values_a}));
        calls.push_back(b.bound(workspace, {on.inputs[1], on.inputs[3]}, {values_b}));
        calls.push_back(product.bound(
            workspace, {values_a, values_b, optional_address(on.inputs, 4)}, {on.outputs[0]}));
        return calls;
      },
      scratch.total());
}

}  // namespace

std::unique_ptr<Kernel> make_fp8_matmul_of_parts(const KernelRequest& r, const Engine& engine) {
  return make(r, engine, is_absent(bias_of(r)) ? DType::bf16 : bias_of(r).dtype);
}

std::unique_ptr<Kernel> make_wide_fp8_matmul_of_parts(const KernelRequest& r,
                                                      const Engine& engine) {
  const DType dtype = is_absent(bias_of(r)) ? r.inputs[2].dtype : bias_of(r).dtype;
  return make(r, engine, is_floating(dtype) ? dtype : DType::f32);
}

}  // namespace dltrain

// matmul by oneDNN, on the plain layouts of both operands, with fused bias, accumulation and
// activation.
#include "cpu/makers.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Describes a dense matrix, optionally transposed.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, bool transposed, DType dtype) {
  return transposed ? onednn::strided({columns, rows}, {1, columns}, dtype)
                    : onednn::strided({rows, columns}, {columns, 1}, dtype);
}

}  // namespace

std::unique_ptr<Kernel> make_matmul_onednn(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (!onednn::computes_in(request, dtype)) return nullptr;
  const std::string activation = request.attributes.text("activation");
  if (request.accumulate && !activation.empty()) return nullptr;  // y + f(a·b) is not a post-op
  const TensorSpec& y = request.outputs[0];
  if (y.shape.elements() == 0) return nullptr;
  dnnl::post_ops post_ops;
  if (request.accumulate) post_ops.append_sum();
  if (!onednn::append_activation(post_ops, activation)) return nullptr;
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape;
  const int64_t rows = a.elements(0, a.rank() - 1), columns = a[-1];
  const int64_t width = y.shape[-1], height = y.shape.elements() / width;
  const UsedThreads used(product_threads(height, rows * columns / height, width));
  const auto a_desc = matrix(rows, columns, request.attributes.boolean("transpose_a"), dtype);
  const auto b_desc = matrix(b[0], b[1], request.attributes.boolean("transpose_b"), dtype);
  const auto y_desc = matrix(height, width, false, y.dtype);
  const bool has_bias = request.inputs.size() == 3 && !is_absent(request.inputs[2]);
  const auto bias_desc = has_bias ? matrix(1, width, false, dtype) : dnnl::memory::desc();
  const auto description =
      onednn::matmul(a_desc, b_desc, bias_desc, y_desc, onednn::attributes(post_ops));
  onednn::Call call{dnnl::matmul(description)};
  call.argument(DNNL_ARG_SRC, a_desc);
  call.argument(DNNL_ARG_WEIGHTS, b_desc);
  call.argument(DNNL_ARG_BIAS, bias_desc);
  call.argument(DNNL_ARG_DST, y_desc);
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  auto kernel = make_kernel(
      [call](const Bindings& b, Stream&) {
        void* bias = b.inputs.size() == 3 ? b.inputs[2] : nullptr;
        call.run({b.inputs[0], b.inputs[1], bias, b.outputs[0], b.workspace});
      },
      description.scratchpad_desc().get_size());
  return onednn::with_relu(request, std::move(kernel));
}

}  // namespace dltrain

#include "shared/common_kernels.h"

#include <vector>

#include "base/error.h"
#include "ops/op.h"
#include "shared/elementwise.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

std::unique_ptr<Kernel> nothing_to_do() {
  return make_kernel([](const Bindings&, Stream&) {});
}

}  // namespace

std::vector<KernelRow> with_elementwise(const KernelRow& form, const KernelRow& update,
                                        std::span<const KernelRow> rows) {
  std::vector<KernelRow> out;
  for (const OpDef& op : all_ops()) {
    const bool optimizer = op.update == UpdateKind::optimizer && op.independent_elements;
    if (!optimizer && !elementwise_op(op.name)) continue;
    out.push_back(optimizer ? update : form);
    out.back().op = op.name;
  }
  out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

std::unique_ptr<Kernel> make_reshape(const KernelRequest&) {
  return nothing_to_do();
}

std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request) {
  if (request.collectives == nullptr) return nothing_to_do();
  std::vector<size_t> bytes;  // of the tensors
  for (const TensorSpec& spec : request.inputs) bytes.push_back(spec.bytes());
  return make_host_kernel([&group = *request.collectives, bytes, dtype = request.inputs[0].dtype,
                           subject = request.subject](const Bindings& b, Stream& stream) {
    const auto* begin = static_cast<const std::byte*>(b.inputs[0]);
    const std::byte* end = begin;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto* input = static_cast<const std::byte*>(b.inputs[i]);
      check_internal(input >= end, "all_reduce_begin: tensors are out of order");
      end = input + bytes[i];
    }
    const size_t count = static_cast<size_t>(end - begin) / dtype_size(dtype);
    *b.ticket = group.all_reduce(b.inputs[0], count, dtype, ReduceOp::sum, stream, subject);
  });
}

std::unique_ptr<Kernel> make_all_reduce_end(const KernelRequest& request) {
  if (request.collectives == nullptr) return nothing_to_do();
  return make_wait(request);
}

}  // namespace dltrain

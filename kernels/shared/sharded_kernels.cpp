// reduce_scatter and all_gather of units (lib/ops/sharded.cpp) through request.collectives, on any
// device, messages between two ranks (lib/ops/transfer.cpp), and gradient_norm_of, for memory that
// the host can access.
#include <numeric>
#include <vector>

#include "base/error.h"
#include "shared/common_kernels.h"
#include "shared/make_kernel.h"
#include "shared/update_rules.h"

namespace dltrain {
// The memory of a unit that no tensor covers is zeroed before it is summed.
std::unique_ptr<Kernel> make_reduce_scatter_begin(const KernelRequest& request) {
  const int64_t ranks = request.attributes.integer("ranks");
  check_internal(request.collectives->size() == ranks, "a unit of {} ranks in a group of {}", ranks,
                 request.collectives->size());
  const DType dtype = request.inputs[0].dtype;
  const auto elements = static_cast<size_t>(request.attributes.integer("elements"));
  const size_t whole_bytes = elements * dtype_size(dtype) * static_cast<size_t>(ranks);
  std::vector<size_t> bytes;
  for (const TensorSpec& spec : request.inputs) bytes.push_back(spec.bytes());
  return make_host_kernel([&device = request.device, &group = *request.collectives, bytes, elements,
                           whole_bytes, dtype,
                           subject = request.subject](const Bindings& b, Stream& stream) {
    auto* const unit = static_cast<std::byte*>(b.inputs[0]);
    std::byte* at = unit;
    const auto zero_to = [&](std::byte* next) {
      check_internal(next >= at && next <= unit + whole_bytes, "a tensor is outside of its unit");
      if (next > at) device.zero(at, static_cast<size_t>(next - at), stream);
    };
    for (size_t i = 0; i < bytes.size(); ++i) {
      zero_to(static_cast<std::byte*>(b.inputs[i]));
      at = static_cast<std::byte*>(b.inputs[i]) + bytes[i];
    }
    zero_to(unit + whole_bytes);
    *b.ticket =
        group.reduce_scatter(unit, b.outputs[0], elements, dtype, ReduceOp::sum, stream, subject);
  });
}
std::unique_ptr<Kernel> make_all_gather_begin(const KernelRequest& request) {
  const TensorSpec& part = request.inputs[0];
  const auto elements = static_cast<size_t>(part.shape.elements());
  return make_host_kernel([elements, dtype = part.dtype, &group = *request.collectives,
                           subject = request.subject](const Bindings& b, Stream& stream) {
    *b.ticket = group.all_gather(b.inputs[0], b.outputs[0], elements, dtype, stream, subject);
  });
}

std::unique_ptr<Kernel> make_all_to_all_begin(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const auto ranks = static_cast<size_t>(request.collectives->size());
  const auto elements = static_cast<size_t>(x.shape.elements());
  return make_host_kernel(
      [&group = *request.collectives,
       call = CollectiveCall{.kind = CollectiveKind::all_to_all,
                             .dtype = x.dtype,
                             .count = elements / ranks,
                             .row = elements / static_cast<size_t>(x.shape[0]),
                             .subject = request.subject}](const Bindings& b, Stream& stream) {
        CollectiveCall its = call;
        its.input = b.inputs[0];
        its.output = b.outputs[0];
        its.sent_rows = b.input<int32_t>(1);
        its.received_rows = b.input<int32_t>(2);
        *b.ticket = group.issue(its, stream);
      });
}
std::unique_ptr<Kernel> make_send_begin(const KernelRequest& request) {
  return make_host_kernel([&group = *request.collectives, spec = request.inputs[0],
                           peer = static_cast<int>(request.attributes.integer("peer")),
                           subject = request.subject](const Bindings& b, Stream& stream) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    *b.ticket = group.send(b.inputs[0], count, spec.dtype, peer, stream, subject);
  });
}
std::unique_ptr<Kernel> make_receive_begin(const KernelRequest& request) {
  return make_host_kernel([&group = *request.collectives, spec = request.outputs[0],
                           peer = static_cast<int>(request.attributes.integer("peer")),
                           subject = request.subject](const Bindings& b, Stream& stream) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    *b.ticket = group.receive(b.outputs[0], count, spec.dtype, peer, stream, subject);
  });
}
std::unique_ptr<Kernel> make_wait(const KernelRequest& request) {
  return make_host_kernel([&group = *request.collectives](const Bindings& b, Stream& stream) {
    group.wait(*b.ticket, stream);
  });
}
std::unique_ptr<Kernel> make_gradient_norm_of(const KernelRequest& request) {
  return make_kernel([count = request.inputs[1].shape[0]](const Bindings& b, Stream&) {
    const double* sums = b.input<double>(1);
    finish_gradient_norm(*static_cast<StepState*>(b.inputs[0]),
                         std::accumulate(sums, sums + count, 0.0));
  });
}

}  // namespace dltrain

#include "shared/common_kernels.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/op.h"
#include "shared/elementwise.h"
#include "shared/make_kernel.h"
#include "shared/update_rules.h"

namespace dltrain {
namespace {

Collectives& group_of(const KernelRequest& request) {
  check_internal(request.collectives != nullptr, "{} without a group of ranks", request.op);
  return *request.collectives;
}

std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request) {
  std::vector<size_t> bytes;  // of the tensors
  for (const TensorSpec& spec : request.inputs) bytes.push_back(spec.bytes());
  return make_host_kernel([&group = group_of(request), bytes, dtype = request.inputs[0].dtype,
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

// The memory of a unit that no tensor covers is zeroed before it is summed.
std::unique_ptr<Kernel> make_reduce_scatter_begin(const KernelRequest& request) {
  const int64_t ranks = request.attributes.integer("ranks");
  check_internal(group_of(request).size() == ranks, "a unit of {} ranks in a group of {}", ranks,
                 group_of(request).size());
  const DType dtype = request.inputs[0].dtype;
  const auto elements = static_cast<size_t>(request.attributes.integer("elements"));
  const size_t whole_bytes = elements * dtype_size(dtype) * static_cast<size_t>(ranks);
  std::vector<size_t> bytes;
  for (const TensorSpec& spec : request.inputs) bytes.push_back(spec.bytes());
  return make_host_kernel([&device = request.device, &group = group_of(request), bytes, elements,
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
  return make_host_kernel([elements, dtype = part.dtype, &group = group_of(request),
                           subject = request.subject](const Bindings& b, Stream& stream) {
    *b.ticket = group.all_gather(b.inputs[0], b.outputs[0], elements, dtype, stream, subject);
  });
}

std::unique_ptr<Kernel> make_all_to_all_begin(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const auto ranks = static_cast<size_t>(group_of(request).size());
  const auto elements = static_cast<size_t>(x.shape.elements());
  return make_host_kernel(
      [&group = group_of(request),
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
  return make_host_kernel([&group = group_of(request), spec = request.inputs[0],
                           peer = static_cast<int>(request.attributes.integer("peer")),
                           subject = request.subject](const Bindings& b, Stream& stream) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    *b.ticket = group.send(b.inputs[0], count, spec.dtype, peer, stream, subject);
  });
}

std::unique_ptr<Kernel> make_receive_begin(const KernelRequest& request) {
  return make_host_kernel([&group = group_of(request), spec = request.outputs[0],
                           peer = static_cast<int>(request.attributes.integer("peer")),
                           subject = request.subject](const Bindings& b, Stream& stream) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    *b.ticket = group.receive(b.outputs[0], count, spec.dtype, peer, stream, subject);
  });
}

std::unique_ptr<Kernel> make_wait(const KernelRequest& request) {
  return make_host_kernel([&group = group_of(request)](const Bindings& b, Stream& stream) {
    group.wait(*b.ticket, stream);
  });
}

// The output of reshape is the input's memory.
std::unique_ptr<Kernel> make_reshape(const KernelRequest&) {
  return make_kernel([](const Bindings&, Stream&) {});
}

constexpr std::pair<std::string_view, KernelMaker> kMessages[] = {
    {"all_reduce_begin", make_all_reduce_begin},
    {"all_reduce_end", make_wait},
    {"reduce_scatter_begin", make_reduce_scatter_begin},
    {"reduce_scatter_end", make_wait},
    {"all_gather_begin", make_all_gather_begin},
    {"all_gather_end", make_wait},
    {"all_to_all_begin", make_all_to_all_begin},
    {"all_to_all_end", make_wait},
    {"send_begin", make_send_begin},
    {"send_end", make_wait},
    {"receive_begin", make_receive_begin},
    {"receive_end", make_wait}};

}  // namespace

std::vector<KernelRow> with_common_rows(const KernelRow& form, const KernelRow& update,
                                        std::span<const KernelRow> rows, bool messages_proven) {
  std::vector<KernelRow> out;
  for (const OpDef& op : all_ops()) {
    const bool optimizer = op.update == UpdateKind::optimizer && op.independent_elements;
    if (!optimizer && !elementwise_op(op.name)) continue;
    out.push_back(optimizer ? update : form);
    out.back().op = op.name;
  }
  out.push_back({.op = "reshape", .variant = "alias", .make = make_reshape});
  for (const auto& [op, make] : kMessages) {
    out.push_back({.op = op, .variant = "messages", .make = make, .proven = messages_proven});
  }
  out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

std::unique_ptr<Kernel> make_gradient_norm_of(const KernelRequest& request) {
  return make_kernel([count = request.inputs[1].shape[0]](const Bindings& b, Stream&) {
    const double* sums = b.input<double>(1);
    finish_gradient_norm(*static_cast<StepState*>(b.inputs[0]),
                         std::accumulate(sums, sums + count, 0.0));
  });
}

}  // namespace dltrain

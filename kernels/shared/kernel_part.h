// Kernels of the same engine as parts of a composed kernel.
#pragma once

#include <initializer_list>
#include <vector>

#include "base/error.h"
#include "ops/kernel.h"
#include "shared/make_kernel.h"
#include "shared/workspace_parts.h"

namespace dltrain {

class KernelPart {
 public:
  struct Request {
    std::string_view op;
    std::vector<TensorSpec> inputs, outputs;
    Attributes attributes = {};
    bool accumulate = false;
  };

  // `whole`: the request of the composed kernel. Adds the part's workspace to `scratch`.
  KernelPart(const Engine& engine, const KernelRequest& whole, const Request& r,
             WorkspaceParts& scratch) {
    kernel_ = find_kernel(engine, {.op = r.op,
                                   .attributes = r.attributes,
                                   .inputs = r.inputs,
                                   .outputs = r.outputs,
                                   .accumulate = r.accumulate,
                                   .device = whole.device})
                  .kernel;
    check_internal(kernel_ != nullptr, "{}: no {} of {}", whole.op, r.op, to_string(r.inputs[0]));
    scratch_at_ = scratch.add(kernel_->workspace_bytes());
  }

  // `workspace`: that of the composed kernel.
  BoundCall bound(std::byte* workspace, std::initializer_list<void*> inputs,
                  std::initializer_list<void*> outputs) const {
    return {*kernel_, std::span(inputs.begin(), inputs.size()),
            std::span(outputs.begin(), outputs.size()), workspace + scratch_at_};
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  size_t scratch_at_ = 0;
};

// A kernel that runs the calls of its parts one after the other: parts(bindings).
template <typename Parts>
std::unique_ptr<Kernel> make_of_parts(Parts parts, size_t workspace) {
  return make_prepared_kernel(
      std::move(parts),
      [](const std::vector<BoundCall>& calls, const Bindings&, Stream& stream) {
        for (const BoundCall& call : calls) call.run(stream);
      },
      workspace);
}

// The maker of a row for kernels that consist of kernels of `engine`.
template <auto engine, auto make>
std::unique_ptr<Kernel> of_parts(const KernelRequest& request) {
  return make(request, engine());
}

// Returns the address of an optional operand; nullptr: absent.
inline void* optional_address(std::span<void* const> list, size_t i) {
  return i < list.size() ? list[i] : nullptr;
}

}  // namespace dltrain

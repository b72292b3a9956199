// A kernel: one op on one backend for known shapes. It is made once and does not change afterwards;
// several calls may use it, each with its own addresses.
//
//   make(request)          knows shapes, dtypes and attributes; builds vendor descriptors
//   prepare(bindings)      optional: makes the data that a call needs besides its addresses,
//                          such as a table of them in device memory; may allocate and wait
//   run(bindings, stream)  queues the work; allocates nothing, waits for nothing
//
// A kernel is used by one thread at a time, since some vendor libraries keep the addresses of a
// call in their descriptors.
//
// Backends list their kernels in one explicit table (kernels/<backend>/table.cpp); the first row
// whose op matches and whose make() does not return nullptr is taken.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/collectives.h"
#include "device/device.h"
#include "ops/attributes.h"
#include "tensor/shape.h"

namespace dltrain {

struct Engine;  // device/engine.h

struct KernelRequest {
  std::string_view op;  // for makers that serve several rows
  const Attributes& attributes;
  std::span<const TensorSpec> inputs;
  std::span<const TensorSpec> outputs;
  // Add to the outputs instead of overwriting them (gradients after the first micro-step). Only set
  // for rows with `accumulates`; applies to every output.
  bool accumulate = false;
  Device& device;
  // The group of ranks of collective ops, in this device's memory; nullptr with one rank.
  Collectives* collectives = nullptr;
  OperationSubject subject = nullptr;  // subject of the kernel's messages
};

// The data that a kernel has prepared for the addresses of one call.
class PreparedBindings {
 public:
  virtual ~PreparedBindings() = default;
};

// The addresses of one call.
struct Bindings {
  std::span<void* const> inputs;   // nullptr for absent optional inputs
  std::span<void* const> outputs;  // an aliased output has its input's address
  void* workspace = nullptr;       // workspace_bytes(), 256-byte aligned, contents undefined
  // Asynchronous collectives (attribute "slot"): the begin kernel stores its ticket here, the end
  // kernel waits for it.
  Collectives::Ticket* ticket = nullptr;
  const PreparedBindings* prepared = nullptr;  // by Kernel::prepare for these addresses

  // Typed access; returns nullptr also for indices beyond the end of the list.
  template <typename T>
  const T* input(size_t i) const {
    return i < inputs.size() ? static_cast<const T*>(inputs[i]) : nullptr;
  }
  template <typename T>
  T* output(size_t i) const {
    return i < outputs.size() ? static_cast<T*>(outputs[i]) : nullptr;
  }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Scratch memory that lives only during run().
  virtual size_t workspace_bytes() const { return 0; }
  // nullptr: run() needs nothing but the addresses. The result is not used after the kernel ends.
  virtual std::unique_ptr<PreparedBindings> prepare(const Bindings&) const { return nullptr; }
  virtual void run(const Bindings& bindings, Stream& stream) const = 0;
  // False: run() is called in every step instead of being captured, since it does work on the host
  // (messages to other ranks). Captured segments are split there (graph/frame.h).
  virtual bool captured() const { return true; }
};

// A kernel with the addresses of one call, which stay fixed.
class BoundCall {
 public:
  BoundCall() = default;
  BoundCall(const Kernel& kernel, std::span<void* const> inputs, std::span<void* const> outputs,
            void* workspace, Collectives::Ticket* ticket = nullptr)
      : kernel_(&kernel), addresses_(inputs.begin(), inputs.end()) {
    addresses_.insert(addresses_.end(), outputs.begin(), outputs.end());
    const std::span<void* const> all(addresses_);
    bindings_ = {all.first(inputs.size()), all.subspan(inputs.size()), workspace, ticket};
    prepared_ = kernel.prepare(bindings_);
    bindings_.prepared = prepared_.get();
  }
  void run(Stream& stream) const { kernel_->run(bindings_, stream); }

 private:
  const Kernel* kernel_ = nullptr;
  std::vector<void*> addresses_;
  std::unique_ptr<PreparedBindings> prepared_;
  Bindings bindings_;  // of the memory of `addresses_`
};

using KernelMaker = std::unique_ptr<Kernel> (*)(const KernelRequest& request);

struct KernelRow {
  std::string_view op;
  std::string_view variant;  // implementation: "oneDNN", "simd", "cublasLt"; shown by `list ops`
  // Returns nullptr for dtypes or attributes it does not serve; may throw KernelRefused.
  KernelMaker make = nullptr;
  bool accumulates = false;
  bool proven = true;  // false until it has run on the hardware it is for
  // For ops that a pass substitutes for others if the engine has a better kernel
  // (passes/lower_recurrent.h): returns the bytes that the kernel keeps for its backward
  // (OpDef::keeps_bytes), or nullopt if it does not serve the request or is not better. nullptr:
  // never better.
  std::optional<int64_t> (*kept_bytes)(const KernelRequest& request) = nullptr;
  // For rows that a build, machine or device may lack: returns the reason, or "" if it is there.
  // `device` may be nullptr: any.
  std::string (*missing)(Device* device) = nullptr;
};

// Adds the kernels of a plug-in (nn/plugin.h) for the engine `name`. They are tried before the
// engine's own and must stay in memory.
void add_kernels(std::string_view engine, std::span<const KernelRow> rows);
// Returns the rows of `engine` for an op, in the order of choice.
std::vector<const KernelRow*> kernel_rows(const Engine& engine, std::string_view op);

struct FoundKernel {
  std::unique_ptr<Kernel> kernel;
  const KernelRow* row = nullptr;
};

// The first row of `engine` that serves the request. Throws Error(usage) naming op, specs and
// engine when none does. When `request.accumulate` is set, rows that cannot accumulate are passed
// over; the result is then empty rather than an error, and the planner adds the addition.
FoundKernel find_kernel(const Engine& engine, const KernelRequest& request);

// Returns the first result of KernelRow::kept_bytes among the rows of `engine`, or nullopt.
std::optional<int64_t> kept_bytes(const Engine& engine, const KernelRequest& request);

// Describes, for the ops whose kernels matter most to speed, the first variant that `engine` has on
// `device` (nullptr: any), and why it has no better one: "attention: own (cuDNN: …)".
std::vector<std::string> describe_kernels(const Engine& engine, Device* device);

// The spec of absent inputs: zero elements.
inline TensorSpec absent_spec() {
  return {Shape{0}, DType::u8};
}

}  // namespace dltrain

// Kernels from functions, the usual form: sizes and descriptors are captured when the kernel is
// made, and addresses are read from the bindings when it runs.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "ops/kernel.h"

namespace dltrain {

template <typename Run>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Run run, size_t workspace_bytes, bool captured)
      : run_(std::move(run)), workspace_bytes_(workspace_bytes), captured_(captured) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const Bindings& bindings, Stream& stream) const override { run_(bindings, stream); }
  bool captured() const override { return captured_; }

 private:
  Run run_;
  size_t workspace_bytes_;
  bool captured_;
};

// A kernel that is one function: run(bindings, stream).
template <typename Run>
std::unique_ptr<Kernel> make_kernel(Run run, size_t workspace_bytes = 0) {
  return std::make_unique<FunctionKernel<Run>>(std::move(run), workspace_bytes, true);
}

// The same for work on the host, such as messages to other ranks (Kernel::captured).
template <typename Run>
std::unique_ptr<Kernel> make_host_kernel(Run run) {
  return std::make_unique<FunctionKernel<Run>>(std::move(run), 0, false);
}

// A kernel of several functions that share addresses: each run copies a `Call`, an object of sizes,
// which reads the addresses in call.run(bindings).
template <typename Call, typename... Arguments>
std::unique_ptr<Kernel> make_call_kernel(Arguments&&... arguments) {
  static_assert(std::is_nothrow_copy_constructible_v<Call>);
  const Call call(std::forward<Arguments>(arguments)...);
  return make_kernel(
      [call](const Bindings& bindings, Stream&) {
        Call own = call;
        own.run(bindings);
      },
      call.workspace_bytes());
}

// A kernel run(prepared, bindings, stream) with the result of prepare(bindings) (Kernel::prepare).
template <typename Prepare, typename Run>
class PreparedKernel final : public Kernel {
 public:
  PreparedKernel(Prepare prepare, Run run, size_t workspace_bytes)
      : prepare_(std::move(prepare)), run_(std::move(run)), workspace_bytes_(workspace_bytes) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::unique_ptr<PreparedBindings> prepare(const Bindings& bindings) const override {
    return std::make_unique<Prepared>(prepare_(bindings));
  }
  void run(const Bindings& bindings, Stream& stream) const override {
    run_(static_cast<const Prepared*>(bindings.prepared)->value, bindings, stream);
  }

 private:
  using Value = std::invoke_result_t<const Prepare&, const Bindings&>;
  struct Prepared final : PreparedBindings {
    explicit Prepared(Value of) : value(std::move(of)) {}
    Value value;
  };

  Prepare prepare_;
  Run run_;
  size_t workspace_bytes_;
};

template <typename Prepare, typename Run>
std::unique_ptr<Kernel> make_prepared_kernel(Prepare prepare, Run run, size_t workspace_bytes = 0) {
  return std::make_unique<PreparedKernel<Prepare, Run>>(std::move(prepare), std::move(run),
                                                        workspace_bytes);
}

}  // namespace dltrain

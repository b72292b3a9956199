// Checks of CUDA calls, owners of the vendors' handles, and libraries that are opened at run time.
// Only for the .cpp files that call vendor libraries; the emulation does not compile them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace dltrain {

// Throw Error(device) "<what>: <the vendor's text>" unless the call succeeded, for cuBLASLt
// KernelRefused; Error(memory) for the vendor's out-of-memory errors. `what` names the op or the
// action.
void check_cuda(cudaError_t code, std::string_view what);
void check_cublas(cublasStatus_t code, std::string_view what);

// Owns one vendor handle (a pointer type) and destroys it with Destroy. Move-only.
template <typename T, auto Destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_ != nullptr) Destroy(handle_);
  }

  T get() const { return handle_; }
  operator T() const { return handle_; }  // NOLINT: handles are passed to the vendor's functions
  // Output argument for the vendor's create functions.
  T* out() { return &handle_; }

 private:
  T handle_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Returns a new event. Times can be read from it only with cudaEventDefault.
EventHandle make_event(unsigned flags = cudaEventDisableTiming);

// A library that is opened at run time and never closed.
struct OpenedLibrary {
  void* handle;                       // nullptr: it is missing
  bool complete = handle != nullptr;  // it has all functions that were asked for

  template <typename Function>
  Function function(const char* name) {
    void* const address = handle == nullptr ? nullptr : dlsym(handle, name);
    complete = complete && address != nullptr;
    return reinterpret_cast<Function>(address);
  }
};

// Declares the member `name`: a function of the member `library`.
#define DLTRAIN_LIBRARY_FUNCTION(name, of) decltype(&of) name = library.function<decltype(&of)>(#of)

}  // namespace dltrain

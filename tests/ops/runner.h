// Runs op cases on any engine. Free of the test framework: the GPU check program links it too.
//
// Every output and the workspace stand between guard words; inputs are compared with what was given
// after the run; outputs hold NaN before it, so what a kernel forgets to write shows; kernels are
// run twice over different rubbish, and must write the same bits. What kernels keep for a backward
// (OpDef::keeps_bytes) is their own: it is not compared, and the backward may change it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/engine.h"
#include "ops/case.h"

namespace dltrain {

// A tensor in host memory.
struct HostTensor {
  TensorSpec spec;
  std::vector<std::byte> data;

  HostTensor() = default;
  explicit HostTensor(const TensorSpec& s) : spec(s), data(s.bytes()) {}

  int64_t elements() const { return spec.shape.elements(); }
  // Elements of f32, f64, i32 and u8 tensors as doubles (rounded to the dtype when written).
  double get(int64_t i) const;
  void set(int64_t i, double value);
};

// The case's attributes and inputs with its f32 tensors in `floating`. Contents depend on the case
// alone: the f64 inputs are the f32 ones, exactly, bf16 and f16 ones are rounded. Of those only the
// inputs that the op takes in 16 bits are: all of them, or where the shape rule refuses that
// (norms, whose scales and statistics are f32) those of the first input's shape. Attributes name
// f32 or f64.
Attributes case_attributes(const OpCase& c, DType floating);
SpecList case_specs(const OpCase& c, DType floating);
std::vector<HostTensor> case_inputs(const OpCase& c, DType floating);

// Does the op compute in 16 bits? Updates and the loss seed work in f32 and f64 alone, and so does
// what refuses 16-bit inputs.
bool has_low_precision(const OpCase& c);

SpecList specs_of(const std::vector<HostTensor>& tensors);
// A copy in another floating dtype; other dtypes stay.
HostTensor converted(const HostTensor& tensor, DType floating);
// Standard normal numbers that depend on `name` alone.
HostTensor random_tensor(const TensorSpec& spec, const std::string& name);

struct OpRun {
  std::string op;
  Attributes attributes;
  std::vector<HostTensor> inputs;
  // With `accumulate` the kernel adds to these outputs.
  bool accumulate = false;
  std::vector<HostTensor> previous = {};
  // The input whose memory output 0 takes (ops with in_place_allowed); −1: none.
  int in_place = -1;
};

struct OpResult {
  bool served = true;  // false: no row of the engine accumulates this op
  std::string variant;
  std::vector<HostTensor> outputs;
  std::vector<std::string> faults;  // "output 0: written beyond its end"
};

class OpRunner {
 public:
  // `unaligned`: tensors begin at their second element of an aligned address. `rounds`: how often
  // kernels run.
  explicit OpRunner(const Engine& engine, int device = 0, bool unaligned = false, int rounds = 2);

  // Throws what find_kernel throws when the engine has no kernel for the op.
  OpResult run(const OpRun& run);
  // For ops whose kernels keep bytes for their backward (OpDef::keeps_bytes): asks the engine for
  // their number, and gives a backward the bytes of this engine's forward on the other inputs.
  void add_kept(OpRun& run);
  const Engine& engine() const { return engine_; }

 private:
  struct Block;
  struct Memory;
  const Engine& engine_;
  bool unaligned_;
  int rounds_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace dltrain

#include "ops/runner.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/kernel.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr size_t kGuard = 256;
// As floating numbers -1.7e38 and -1e304: a guard that a kernel reads shows in its results.
constexpr std::byte kGuardByte{0xFE};

bool is_kept(const OpDef& op, const TensorSpec& spec) {
  return op.keeps_bytes && spec.dtype == DType::u8;
}

constexpr std::byte kRubbish[2] = {std::byte{0xFF}, std::byte{0x3C}};  // the first one is a NaN

}  // namespace

// Device memory for one tensor between two guards.
struct OpRunner::Block {
  Block(Device& device, Stream& stream, size_t payload_bytes, size_t payload_offset = 0)
      : device_(&device), stream_(&stream), bytes(payload_bytes), offset(payload_offset) {
    buffer = Buffer(device, bytes + offset + 2 * kGuard);
    const std::vector<std::byte> guards(buffer.bytes(), kGuardByte);
    device.copy(buffer.data(), guards.data(), guards.size(), stream);
    stream.synchronize();
  }

  std::byte* payload() const { return buffer.data() + kGuard + offset; }

  void write(const std::vector<std::byte>& content) {
    device_->copy(payload(), content.data(), bytes, *stream_);
    stream_->synchronize();
  }
  void write(std::byte value) { write(std::vector<std::byte>(bytes, value)); }

  std::vector<std::byte> read() const {
    std::vector<std::byte> out(bytes);
    device_->copy(out.data(), payload(), bytes, *stream_);
    stream_->synchronize();
    return out;
  }

  void check_guards(const std::string& what, std::vector<std::string>& faults) const {
    std::vector<std::byte> all(buffer.bytes());
    device_->copy(all.data(), buffer.data(), all.size(), *stream_);
    stream_->synchronize();
    const auto intact = [](std::byte b) { return b == kGuardByte; };
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kGuard + offset);
    if (!std::all_of(all.begin(), begin, intact)) {
      faults.push_back(what + ": written before its start");
    }
    if (!std::all_of(all.end() - kGuard, all.end(), intact)) {
      faults.push_back(what + ": written beyond its end");
    }
  }

  Device* device_;
  Stream* stream_;
  size_t bytes, offset;
  Buffer buffer;
};

OpRunner::OpRunner(const Engine& engine, int device, bool unaligned, int rounds)
    : engine_(engine),
      unaligned_(unaligned),
      rounds_(rounds),
      device_(engine.open(device)),
      stream_(device_->make_stream()) {}

// The memory of one run: a block for each input, each output that is not an input's memory, and the
// workspace.
struct OpRunner::Memory {
  Memory(Device& device, Stream& stream, const OpRun& run, const SpecList& outputs,
         std::vector<int> output_aliases, size_t workspace_bytes, bool unaligned)
      : aliases(std::move(output_aliases)), workspace(device, stream, workspace_bytes) {
    // Tensors of bytes are structs.
    const auto offset = [&](const TensorSpec& spec) {
      return unaligned && spec.dtype != DType::u8 ? dtype_size(spec.dtype) : 0;
    };
    for (const HostTensor& input : run.inputs) {
      in.emplace_back(device, stream, input.spec.bytes(), offset(input.spec));
      in_addresses.push_back(is_absent(input.spec) ? nullptr : in.back().payload());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      out.emplace_back(device, stream, aliases[i] < 0 ? outputs[i].bytes() : 0, offset(outputs[i]));
      out_addresses.push_back(output_block(i).payload());
    }
  }

  const Block& output_block(size_t i) const {
    return aliases[i] < 0 ? out[i] : in[static_cast<size_t>(aliases[i])];
  }

  void fill(const OpRun& run, std::byte rubbish) {
    for (size_t i = 0; i < in.size(); ++i) in[i].write(run.inputs[i].data);
    for (size_t i = 0; i < out.size(); ++i) {
      if (run.accumulate) {
        out[i].write(run.previous[i].data);
      } else {
        out[i].write(rubbish);
      }
    }
    workspace.write(rubbish);
  }

  void check(const OpRun& run, std::vector<std::string>& faults) const {
    for (size_t i = 0; i < in.size(); ++i) {
      in[i].check_guards(fmt::format("input {}", i), faults);
      const bool written =
          std::find(aliases.begin(), aliases.end(), static_cast<int>(i)) != aliases.end();
      if (!written && !is_kept(*find_op(run.op), run.inputs[i].spec) &&
          in[i].read() != run.inputs[i].data) {
        faults.push_back(fmt::format("input {}: changed", i));
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].check_guards(fmt::format("output {}", i), faults);
    }
    workspace.check_guards("the workspace", faults);
  }

  std::vector<int> aliases;  // for each output the input that it shares memory with, or −1
  std::vector<Block> in, out;
  Block workspace;
  std::vector<void*> in_addresses, out_addresses;
};

void OpRunner::add_kept(OpRun& run) {
  if (!find_op(run.op)->keeps_bytes) return;
  const bool backward = run.op.ends_with("_backward");
  OpRun forward = run;
  auto& in = run.inputs;
  if (backward) {  // of recurrent_network, so far the only such op
    forward.op.resize(forward.op.size() - std::string_view("_backward").size());
    forward.inputs = {in[1], in[3], in[4], in[5], in[6], in[7], in[8]};
  }
  const SpecList inputs = specs_of(forward.inputs),
                 outputs = find_op(forward.op)->output_specs(inputs, forward.attributes);
  const auto bytes = kept_bytes(engine_, {.op = forward.op,
                                          .attributes = forward.attributes,
                                          .inputs = inputs,
                                          .outputs = outputs,
                                          .device = *device_});
  if (bytes) {
    run.attributes.set("kept_bytes", *bytes);
    forward.attributes.set("kept_bytes", *bytes);
  }
  if (!backward) return;
  OpResult made = this->run(forward);
  if (run.attributes.integer("kept_bytes") > 0) in[9] = std::move(made.outputs.back());
  in[2] = std::move(made.outputs[0]);
}

OpResult OpRunner::run(const OpRun& run) {
  const OpDef* op = find_op(run.op);
  check_internal(op != nullptr, "no op {}", run.op);
  const SpecList inputs = specs_of(run.inputs), outputs = op->output_specs(inputs, run.attributes);
  const FoundKernel found = find_kernel(engine_, {.op = run.op,
                                                  .attributes = run.attributes,
                                                  .inputs = inputs,
                                                  .outputs = outputs,
                                                  .accumulate = run.accumulate,
                                                  .device = *device_});
  OpResult result;
  result.served = found.kernel != nullptr;
  if (!result.served) return result;
  result.variant = std::string(found.row->variant);

  std::vector<int> aliases = op->output_aliases(inputs, run.attributes, outputs.size());
  if (run.in_place >= 0) aliases[0] = run.in_place;
  Memory memory(*device_, *stream_, run, outputs, std::move(aliases),
                found.kernel->workspace_bytes(), unaligned_);
  const BoundCall call(*found.kernel, memory.in_addresses, memory.out_addresses,
                       memory.workspace.payload());

  for (int round = 0; round < rounds_; ++round) {
    memory.fill(run, kRubbish[round]);
    // The second run is a replay where the engine captures: it must write the same bits.
    const auto run_kernel = [&] { call.run(*stream_); };
    const auto graph = round == 1 ? device_->capture(*stream_, run_kernel) : nullptr;
    if (graph) {
      graph->launch(*stream_);
    } else {
      run_kernel();
    }
    stream_->synchronize();
    for (size_t i = 0; i < outputs.size(); ++i) {
      HostTensor value(outputs[i]);
      value.data = memory.output_block(i).read();
      if (round == 0) {
        result.outputs.push_back(std::move(value));
      } else if (!is_kept(*op, outputs[i]) && value.data != result.outputs[i].data) {
        result.faults.push_back(fmt::format("output {}: the second run wrote other bits", i));
      }
    }
  }
  memory.check(run, result.faults);
  return result;
}

}  // namespace dltrain

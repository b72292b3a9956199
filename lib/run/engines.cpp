#include "run/engines.h"

#include "base/error.h"
#include "base/log.h"
#include "ops/kernel.h"

namespace dltrain {

SelectedDevice choose_device(const std::string& wanted, const Engines& engines, int local_rank) {
  if (wanted == "cpu") return {engines.cpu, engines.cpu->open(0), {}};
  std::string why;
  const Engine* cuda = load_engine_plugin("cuda", why);
  const int count = cuda != nullptr ? cuda->device_count() : 0;
  if (cuda != nullptr && count == 0) why = "the driver reports no GPU";
  if (count == 0) {
    if (wanted != "auto") fail(ExitCode::device, "device {}: {}", wanted, why);
    // Without a GPU in the machine there is no note; `dltrain version` gives the reason.
    return {engines.cpu, engines.cpu->open(0),
            has_nvidia_gpu() ? "running on the CPU: " + why : ""};
  }
  const int index = wanted.starts_with("cuda:") ? std::stoi(wanted.substr(5)) : local_rank % count;
  if (index >= count) {
    fail(ExitCode::device, "device {}: this machine has {} GPU{} (cuda:0 to cuda:{})", wanted,
         count, count == 1 ? "" : "s", count - 1);
  }
  try {
    return {cuda, cuda->open(index), {}};
  } catch (const Error& error) {  // too old a GPU, or one that another process has for itself
    if (wanted != "auto" || error.code() != ExitCode::device) throw;
    return {engines.cpu, engines.cpu->open(0), std::string("running on the CPU: ") + error.what()};
  }
}

void log_notices(Device& device) {
  device.notices().report_to([](const std::string& text) { log_warning("{}", text); });
}

void check_compute(const PrecisionConfig& precision, const Device& device) {
  const DeviceProperties& p = device.properties();
  if (p.has_bf16) return;
  const auto refuse = [&](const char* key, const char* format) {
    fail_at(
        precision, key,
        "{} needs an sm_80 GPU (Ampere) or a newer one, and {} is an sm_{}; it has fp16 and f32",
        format, p.name, p.architecture.substr(3));
  };
  if (precision.compute == DType::bf16) refuse("compute", "bf16");
  if (precision.matmul == ProductMath::tf32) refuse("matmul", "tf32");
  if (precision.low() == DType::bf16) refuse("overrides", "bf16");
  if (precision.any_tf32()) refuse("overrides", "tf32");
}

KeptBytes recurrent_kept_bytes(std::function<const SelectedDevice&()> open) {
  return [open = std::move(open)](const Attributes& attributes, SpecSpan inputs, SpecSpan outputs) {
    const SelectedDevice& chosen = open();
    return kept_bytes(*chosen.engine, {.op = "recurrent_network",
                                       .attributes = attributes,
                                       .inputs = inputs,
                                       .outputs = outputs,
                                       .device = *chosen.device});
  };
}

}  // namespace dltrain

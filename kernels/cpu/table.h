// The kernel table of the CPU engine, in the order in which kernels are tried.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cpu_kernels();

}  // namespace dltrain

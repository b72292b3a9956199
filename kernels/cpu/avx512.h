// True if a file that Highway compiles once per instruction set is being compiled for AVX-512.
// Newer versions of Highway have several such targets; better ones have lower numbers. A
// function-like macro, so that a missing include is an error instead of a slow kernel.
#pragma once

#define DLTRAIN_AVX512() (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)

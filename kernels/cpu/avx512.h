// Whether a file that Highway compiles once an instruction set is being compiled for AVX-512: newer
// versions of it have several such targets, of which the better has the lower number. A function,
// so that a file which does not include this is an error and not a slow kernel.
#pragma once

#define DLTRAIN_AVX512() (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)

// Writes images as PNG (ISO/IEC 15948): 8 bits, grey or RGB, no interlacing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dltrain {

// `channels`: 1 (grey) or 3 (RGB); `pixels`: height · width · channels bytes, rows from the top.
std::string encode_png(int width, int height, int channels, std::span<const uint8_t> pixels);

}  // namespace dltrain

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, as in RFC 3720): what event files are checked with.
#pragma once

#include <cstdint>
#include <string_view>

namespace dltrain {

uint32_t crc32c(std::string_view bytes);

// As record files store it: rotated and offset, so that a CRC of data that holds CRCs is not weak.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace dltrain

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, RFC 3720), the checksum of event files.
#pragma once

#include <cstdint>
#include <string_view>

namespace dltrain {

uint32_t crc32c(std::string_view bytes);

// The form in record files: rotated and offset, because CRCs of data that contains CRCs are weak.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace dltrain

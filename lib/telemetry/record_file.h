// The framing of event files (TFRecord): each record is
//
//   uint64 length   uint32 masked CRC-32C of the length   the bytes   uint32 masked CRC-32C of them
//
// in little-endian. An incomplete or damaged record ends a file; data after it is ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, RFC 3720).
uint32_t crc32c(std::string_view bytes);
// The form in records: rotated and offset, because CRCs of data that contains CRCs are weak.
uint32_t masked_crc32c(std::string_view bytes);

// Returns a record with its frame.
std::string framed_record(std::string_view bytes);

struct Record {
  std::string_view bytes;  // into the text that was read
  size_t end = 0;          // offset after its frame
};

// Returns the valid records from the beginning of `file`, up to the first invalid one.
std::vector<Record> read_records(std::string_view file);

}  // namespace dltrain

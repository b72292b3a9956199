// The protocol between StoreClient and StoreServer. Every message is a frame: u32 length
// (little-endian), then that many bytes.
//
//   handshake   client: magic[8], u32 version, secret
//              server: magic[8], u32 version, u8 status
//   request    client: u8 operation, u32 key length, key, value
//   reply      server: u8 status, value
//
// The value of `get` is u32 milliseconds to wait; of `add` a decimal number. The reply to `add`
// holds the sum, or nothing if the key holds no number; the reply to `put_new` the key's value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/store.h"

namespace dltrain::store_protocol {

inline constexpr std::string_view kMagic = "dltstore";
inline constexpr size_t kMaxHandshake = 8 + 4 + kStoreMaxSecret;
inline constexpr size_t kMaxMessage = 1 + 4 + kStoreMaxKey + kStoreMaxValue;

enum Operation : uint8_t { set = 1, get = 2, add = 3, put_new = 4, will = 5 };
enum Status : uint8_t { ok = 0, timeout = 1, refused_version = 2, refused_secret = 3 };

}  // namespace dltrain::store_protocol

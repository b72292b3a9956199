// The protocol between StoreClient and StoreServer. Every message is a frame: u32 length
// (little-endian), then that many bytes.
//
//   handshake   client: magic[8], u32 version, secret
//              server: magic[8], u32 version, u8 status
//   request    client: u32 id, u8 operation, u32 key length, key, value
//   reply      server: u32 id, u8 status, value
//
// A client may send more requests before it has the replies. The server processes them in order,
// but a reply to `get` comes when the key exists, so a client knows a reply by its id.
//
// The value of `get` is u32 milliseconds to wait. The reply to `put_new` holds the key's value; the
// reply to `list` the values of all keys that begin with the key, each with its length (u32) before
// it, in the order of the keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/store.h"

namespace dltrain::store_protocol {

inline constexpr std::string_view kMagic = "dltstore";
inline constexpr size_t kMaxHandshake = 8 + 4 + kStoreMaxSecret;
inline constexpr size_t kMaxMessage = 4 + 1 + 4 + kStoreMaxKey + kStoreMaxValue;

enum Status : uint8_t { ok = 0, timeout = 1, refused_version = 2, refused_secret = 3 };

// Appends a little-endian number.
inline void append_u32(std::string& to, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<char>(value >> shift));
}

// Removes a number from the front of `from`. Returns false if there are fewer than four bytes.
inline bool take_u32(std::string_view& from, uint32_t& value) {
  if (from.size() < 4) return false;
  value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(from[i]);
  from.remove_prefix(4);
  return true;
}

// Removes a text with its length before it from the front of `from`. Returns false if it is
// incomplete.
inline bool take_text(std::string_view& from, std::string_view& text) {
  std::string_view rest = from;
  uint32_t length = 0;
  if (!take_u32(rest, length) || rest.size() < length) return false;
  text = rest.substr(0, length);
  from = rest.substr(length);
  return true;
}

inline void append_text(std::string& to, std::string_view text) {
  append_u32(to, static_cast<uint32_t>(text.size()));
  to += text;
}

}  // namespace dltrain::store_protocol

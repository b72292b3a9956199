#include "comm/endpoint.h"

#include "base/error.h"
#include "comm/socket.h"

namespace dltrain {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

bool is_own_address(const std::string& address) {
  try {
    listen_on(address, 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string listening_address(const std::string& address) {
  if (is_loopback(address)) return address;
  try {
    return is_loopback(local_address(listen_on(address, 0).get())) ? "" : address;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace dltrain

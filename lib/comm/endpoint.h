// Addresses at which ranks and launchers meet.
#pragma once

#include <string>

namespace dltrain {

// Whether only this host reaches what listens on `address`: localhost, 127.0.0.0/8 or ::1 as such.
// Not a host's name that the host itself resolves to one of these.
bool is_loopback(const std::string& address);
// Whether `address` is one of this host.
bool is_own_address(const std::string& address);
// Where to listen for others that come to `address`: there, where it is one of this host that they
// can reach; else (a service in front of this host, a name that is 127.0.1.1 here) everywhere: "".
std::string listening_address(const std::string& address);

}  // namespace dltrain

#include "comm/agreement.h"

#include <span>

#include "base/checksum.h"

namespace dltrain {

Agreement agree_through(StoreClient& store, int rank, std::chrono::milliseconds timeout) {
  return [&store, rank, timeout](const std::string& key, const std::function<std::string()>& make) {
    Hasher hasher;  // keys of the store are short
    hasher.update(std::as_bytes(std::span(key)));
    const std::string name = "choice/" + hasher.hex();
    return rank == 0 ? store.put_new(name, make()) : store.get(name, timeout);
  };
}

}  // namespace dltrain

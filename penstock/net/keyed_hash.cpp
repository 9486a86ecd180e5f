#include "penstock/net/keyed_hash.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "penstock/util/check.h"

namespace penstock::net {

Hash keyed_hash(const std::string& key, const std::string& text) {
  Hash hash = {};
  unsigned bytes = 0;
  const uint8_t* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const uint8_t*>(text.data()), text.size(), hash.data(), &bytes);
  PENSTOCK_CHECK(done != nullptr && bytes == hash.size(), bytes);
  return hash;
}

}  // namespace penstock::net

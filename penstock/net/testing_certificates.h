// Certificates that a test makes.
#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace penstock::net::testing_certificates {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

inline constexpr long kDay = 86'400;

inline Key new_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

inline void check(bool done) {
  if (!done) throw std::runtime_error("OpenSSL made no certificate");
}

struct Life {
  long begin = -kDay;  ///< seconds from now
  long end = kDay;
};

/// Signs its own certificate and those of ranks.
class Authority {
 public:
  explicit Authority(const std::string& name) : key_(new_key()) {
    certificate_ = made(name, key_, nullptr, {}, "critical,CA:TRUE");
  }

  Certificate sign(const std::string& name, const Key& key, Life life) const {
    return made(name, key, certificate_.get(), life, "CA:FALSE");
  }
  const Certificate& certificate() const { return certificate_; }

 private:
  Certificate made(const std::string& name, const Key& key, X509* issuer, Life life,
                   const char* constraints) const {
    Certificate made(X509_new(), X509_free);
    X509* const one = made.get();
    const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
    X509_NAME* const subject = X509_get_subject_name(one);
    check(X509_set_version(one, 2) == 1 &&
          ASN1_INTEGER_set(X509_get_serialNumber(one), reinterpret_cast<intptr_t>(one)) == 1 &&
          X509_gmtime_adj(X509_getm_notBefore(one), life.begin) != nullptr &&
          X509_gmtime_adj(X509_getm_notAfter(one), life.end) != nullptr &&
          X509_set_pubkey(one, key.get()) == 1 &&
          X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
          X509_set_issuer_name(one, issuer ? X509_get_subject_name(issuer) : subject) == 1);
    const std::shared_ptr<X509_EXTENSION> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, constraints),
        X509_EXTENSION_free);
    check(X509_add_ext(one, extension.get(), -1) == 1 &&
          X509_sign(one, key_.get(), EVP_sha256()) > 0);
    return made;
  }

  Key key_;
  Certificate certificate_;
};

/// A folder for a rank, as long as the object lives.
class CertificateFolder {
 public:
  CertificateFolder(const std::string& name, const Authority& signer, const Authority& trusted,
                    Life life = {})
      : path_(testing::TempDir() + "penstock-tls-" + name + "-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
    const Key key = new_key();
    const Certificate certificate = signer.sign(name, key, life);
    write("tls.crt", [&](FILE* file) { return PEM_write_X509(file, certificate.get()); });
    write("tls.key", [&](FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    write("ca.crt", [&](FILE* file) { return PEM_write_X509(file, trusted.certificate().get()); });
  }
  ~CertificateFolder() { std::filesystem::remove_all(path_); }
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  template <class Write>
  void write(const char* name, const Write& write) const {
    FILE* const file = std::fopen((path_ + "/" + name).c_str(), "w");
    check(file != nullptr && write(file) == 1);
    std::fclose(file);
  }

  std::string path_;
};

}  // namespace penstock::net::testing_certificates

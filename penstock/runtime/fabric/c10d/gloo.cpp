#include "penstock/runtime/fabric/c10d/gloo.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/runtime/fabric/c10d/c10d_carrier.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

constexpr std::chrono::minutes kConnecting{1};

/// The addresses of Gloo's connections, told over the mesh: no other port is open meanwhile.
class MeshStore : public c10d::Store {
 public:
  MeshStore(const GlooSetup& setup, std::string prefix)
      : c10d::Store(kConnecting), setup_(setup), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    setup_.put(prefix_ + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string text = setup_.get(prefix_ + key);
    return {text.begin(), text.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) setup_.get(prefix_ + key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }
  int64_t add(const std::string&, int64_t) override { return refuse("add"); }
  bool deleteKey(const std::string&) override { return refuse("deleteKey") != 0; }
  bool check(const std::vector<std::string>&) override { return refuse("check") != 0; }
  int64_t getNumKeys() override { return refuse("getNumKeys"); }

 private:
  static int64_t refuse(const char* what) {
    throw InternalError(fmt::format("Gloo connects by an operation that is not there: {}", what));
  }

  const GlooSetup& setup_;
  std::string prefix_;
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<net::Carrier> make_gloo_carrier(const GlooSetup& setup) {
  using c10d::ProcessGroupGloo;
  try {
    std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
    for (int lane = 0; lane < net::kCarrierLanes; ++lane) {
      auto options = ProcessGroupGloo::Options::create(kConnecting);
      options->threads = 1;  // for collective operations, which are not used
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(setup.address));
      const auto store = c10::make_intrusive<MeshStore>(setup, fmt::format("gloo/{}/", lane));
      groups.push_back(
          c10::make_intrusive<ProcessGroupGloo>(store, setup.rank, setup.ranks, options));
    }
    return make_c10d_carrier(std::move(groups));
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw TransportError(fmt::format("Gloo cannot connect: {}", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw TransportError(fmt::format("Gloo cannot connect: {}", error.what()));
  }
}

}  // namespace penstock::runtime

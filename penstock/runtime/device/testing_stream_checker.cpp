#include "penstock/runtime/device/testing_stream_checker.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace penstock::runtime::testing {

namespace {

constexpr int kNoStream = -1;
constexpr size_t kMostViolations = 20;

/// By stream: how much of its work is known to be done.
using Clock = std::map<int, int64_t>;

void merge(Clock& into, const Clock& other) {
  for (const auto& [stream, time] : other) into[stream] = std::max(into[stream], time);
}

struct Access {
  int stream = kNoStream;
  int64_t time = 0;
};

struct State {
  std::mutex mutex;
  bool ignores_waits = false;
  std::vector<bool> is_host;  ///< by stream
  std::vector<Clock> knows;   ///< by stream
  Clock host;                 ///< what some thread has waited for
  /// Keeps addresses from being used again: operations make tensors that no callback sees.
  std::map<const void*, c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  std::map<const void*, Access> writer;
  std::map<const void*, std::map<int, int64_t>> readers;
  /// Memory of the host: streams copy from and to it; all else is work of the host's threads, which
  /// order it among themselves.
  std::set<const void*> host_memory;
  std::vector<std::string> violations;
  int64_t operations = 0;

  void reset(bool forgets) {
    const std::lock_guard lock(mutex);
    ignores_waits = forgets;
    is_host.clear();
    knows.clear();
    host.clear();
    seen.clear();
    writer.clear();
    readers.clear();
    host_memory.clear();
    violations.clear();
    operations = 0;
  }
  int add(bool host_stream) {
    const std::lock_guard lock(mutex);
    is_host.push_back(host_stream);
    knows.emplace_back();
    return static_cast<int>(knows.size()) - 1;
  }
  bool known(int to, const Access& access) {
    if (access.stream == kNoStream || access.stream == to) return true;
    // The host does its work at once; what it has written is there.
    if (is_host[static_cast<size_t>(access.stream)]) return true;
    return knows[static_cast<size_t>(to)][access.stream] >= access.time ||
           host[access.stream] >= access.time;
  }
  void note(const char* what, int to, const Access& access, const char* operation) {
    if (violations.size() >= kMostViolations) return;
    violations.push_back(fmt::format("{} in stream {}: {} stream {}, at {}", operation, to, what,
                                     access.stream, access.time));
  }
};

State& state() {
  static State one;
  return one;
}

thread_local int t_stream = kNoStream;
thread_local bool t_copies = false;  ///< in DeviceStream::copy()

class Inside final : public model::StreamScope {
 public:
  explicit Inside(int stream) : before_(std::exchange(t_stream, stream)) {}
  ~Inside() override { t_stream = before_; }

 private:
  int before_;
};

/// What stands for the tensor's memory. To be called with the lock.
const void* key_of(const at::Tensor& tensor) {
  const void* const key = tensor.storage().unsafeGetStorageImpl();
  state().seen.try_emplace(key, tensor.storage().getWeakStorageImpl());
  return key;
}

/// With the lock.
template <class Use>
void for_each_tensor(const c10::IValue& value, const Use& use) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().has_storage()) use(key_of(value.toTensor()));
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined() && tensor.has_storage()) use(key_of(tensor));
    }
  }
}

bool writes_in_place(const std::string& name) { return name.ends_with("_"); }

/// The inputs' storages: the inputs themselves are gone when the operation ends.
struct Inputs final : at::ObserverContext {
  std::vector<const void*> storages;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const int to = t_stream;
  auto seen = std::make_unique<Inputs>();
  State& all = state();
  const std::lock_guard lock(all.mutex);
  for (const c10::IValue& input : function.inputs())
    for_each_tensor(input, [&](const void* storage) { seen->storages.push_back(storage); });
  if (to == kNoStream) return seen;
  const std::string name = function.name();
  if (!all.is_host[static_cast<size_t>(to)]) ++all.operations;
  const int64_t now = ++all.knows[static_cast<size_t>(to)][to];
  bool is_first = true;
  for (const c10::IValue& input : function.inputs()) {
    const bool is_written = is_first && writes_in_place(name);
    is_first = false;
    for_each_tensor(input, [&](const void* storage) {
      const auto writer = all.writer.find(storage);
      if (writer != all.writer.end() && !all.known(to, writer->second))
        all.note("reads what was written by", to, writer->second, name.c_str());
      if (all.host_memory.contains(storage) && !t_copies) return;
      auto& readers = all.readers[storage];
      if (is_written) {
        for (const auto& [stream, time] : readers) {
          if (!all.known(to, {stream, time}))
            all.note("writes to what is read by", to, {stream, time}, name.c_str());
        }
        readers.clear();
        all.writer[storage] = {to, now};
      }
      readers[to] = now;
    });
  }
  return seen;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  const int to = t_stream;
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const std::vector<const void*>& inputs = dynamic_cast<const Inputs&>(*context).storages;
  for (const c10::IValue& output : function.outputs()) {
    for_each_tensor(output, [&](const void* storage) {
      // A view, or written in place, which on_start() has noted.
      if (std::find(inputs.begin(), inputs.end(), storage) != inputs.end()) return;
      all.readers.erase(storage);
      all.host_memory.erase(storage);
      if (to == kNoStream)
        all.writer.erase(storage);
      else
        all.writer[storage] = {to, all.knows[static_cast<size_t>(to)][to]};
    });
  }
}

class CheckedEvent final : public model::DeviceEvent {
 public:
  explicit CheckedEvent(Clock clock) : clock_(std::move(clock)) {}
  // A GPU that is never early.
  bool is_done() const override { return false; }
  void wait_on_host() const override {
    const std::lock_guard lock(state().mutex);
    merge(state().host, clock_);
  }
  int64_t ns_since(const model::DeviceEvent&) const override { return 1000; }
  const Clock& clock() const { return clock_; }

 private:
  Clock clock_;
};

class CheckedStream final : public model::DeviceStream {
 public:
  explicit CheckedStream(at::Device device)
      : device_(device), number_(state().add(device.is_cpu())) {}

  at::Device device() const override { return device_; }
  at::Device memory() const override { return at::kCPU; }
  std::unique_ptr<model::StreamScope> enter() override { return std::make_unique<Inside>(number_); }

  model::EventPtr record(bool) override {
    if (is_host()) return nullptr;
    const std::lock_guard lock(state().mutex);
    Clock& clock = state().knows[static_cast<size_t>(number_)];
    ++clock[number_];
    return std::make_shared<CheckedEvent>(clock);
  }
  void wait(const model::EventPtr& event) override {
    if (!event || state().ignores_waits) return;
    if (is_host()) return event->wait_on_host();
    const std::lock_guard lock(state().mutex);
    merge(state().knows[static_cast<size_t>(number_)],
          dynamic_cast<const CheckedEvent&>(*event).clock());
  }
  void uses(const at::Tensor&) override {}
  at::Tensor allocate_like(const at::Tensor& tensor, bool) override {
    const Inside inside(is_host() ? kNoStream : number_);
    at::Tensor memory = at::empty_like(tensor);
    if (is_host()) {
      const std::lock_guard lock(state().mutex);
      state().host_memory.insert(key_of(memory));
    }
    return memory;
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const Inside inside(is_host() ? kNoStream : number_);
    const at::NoGradGuard no_grad;
    t_copies = true;
    to.copy_(from);
    t_copies = false;
  }
  void synchronize() override {
    if (const model::EventPtr event = record(false)) event->wait_on_host();
  }

 private:
  at::Device device_;
  int number_;
};

}  // namespace

CheckedDevices::CheckedDevices(int count, bool ignores_waits) : EmulatedDevices(count) {
  state().reset(ignores_waits);
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                      .needsInputs(true)
                                      .needsOutputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

CheckedDevices::~CheckedDevices() { at::removeCallback(handle_); }

std::shared_ptr<model::DeviceStream> CheckedDevices::stream(at::Device device) {
  return std::make_shared<CheckedStream>(device);
}

std::vector<std::string> CheckedDevices::violations() const {
  const std::lock_guard lock(state().mutex);
  return state().violations;
}

int64_t CheckedDevices::operations() const {
  const std::lock_guard lock(state().mutex);
  return state().operations;
}

}  // namespace penstock::runtime::testing

#include "penstock/train/rank_results.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "penstock/runtime/fabric/world.h"
#include "penstock/util/error.h"

namespace penstock::train {

namespace {

/// Appends values to a text and reads them again. Ranks of one job have the same byte order.
class Packer {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void bytes(const void* data, size_t size) { text_.append(static_cast<const char*>(data), size); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : text_(text) {}
  template <class T>
  T get() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }
  void bytes(void* data, size_t size) {
    if (size > text_.size() - at_) throw TransportError("a rank's results are too short");
    std::memcpy(data, text_.data() + at_, size);
    at_ += size;
  }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

std::string packed(const TrainResult& result, const RankSummary& summary) {
  Packer out;
  out.put(summary);
  out.put(result.idle_share);
  out.put(result.timeline.active_workers());
  out.put<uint64_t>(result.timeline.workers.size());
  for (size_t w = 0; w < result.timeline.workers.size(); ++w) {
    const auto& events = result.timeline.workers[w];
    out.put(result.peak_versions.at(w));
    out.put<uint64_t>(events.size());
    for (const auto& event : events) out.put(event);
  }
  return out.take();
}

/// Adds what another rank has. Returns its idle share and its number of workers.
std::pair<double, int64_t> add(const std::string& text, TrainResult& result) {
  Unpacker in(text);
  result.ranks.push_back(in.get<RankSummary>());
  const auto idle_share = in.get<double>();
  const auto active = in.get<int64_t>();
  const auto workers = in.get<uint64_t>();
  if (workers != result.timeline.workers.size())
    throw TransportError("the ranks have measured different numbers of workers");
  for (size_t w = 0; w < workers; ++w) {
    const auto versions = in.get<int64_t>();
    std::vector<schedule::TimelineEvent> events(in.get<uint64_t>());
    for (auto& event : events) event = in.get<schedule::TimelineEvent>();
    if (events.empty()) continue;
    result.timeline.workers[w] = std::move(events);
    result.peak_versions[w] = versions;
  }
  return {idle_share, active};
}

/// Layer by layer, so that little is on its way at a time.
void collect_weights(const runtime::Ranks& ranks, TrainResult& result) {
  for (model::Tensors& layer : result.weights) {
    Packer out;
    out.put<uint64_t>(layer.size());
    for (const at::Tensor& weight : layer) {
      const at::Tensor whole = weight.contiguous();
      out.put(whole.scalar_type());
      out.put<uint64_t>(static_cast<uint64_t>(whole.dim()));
      for (const int64_t size : whole.sizes()) out.put(size);
      out.bytes(whole.data_ptr(), whole.nbytes());
    }
    runtime::Wait wait = runtime::wait_for(ranks.deadline);
    const std::vector<std::string> texts = ranks.world->gather(out.take(), wait);
    for (size_t r = 1; r < texts.size(); ++r) {
      Unpacker in(texts[r]);
      const auto count = in.get<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        const auto type = in.get<at::ScalarType>();
        std::vector<int64_t> sizes(in.get<uint64_t>());
        for (int64_t& size : sizes) size = in.get<int64_t>();
        at::Tensor weight = at::empty(sizes, at::TensorOptions(type));
        in.bytes(weight.data_ptr(), weight.nbytes());
        layer.push_back(std::move(weight));
      }
    }
  }
}

}  // namespace

void collect_on_first(const runtime::Ranks& ranks, TrainResult& result) {
  const runtime::WireStats wire = ranks.world->wire();
  const RankSummary own{.peak_memory_bytes = result.peak_memory_bytes,
                        .sent_bytes = wire.sent_bytes,
                        .received_bytes = wire.received_bytes,
                        .clock_error_ns = wire.clock_error_ns};
  runtime::Wait wait = runtime::wait_for(ranks.deadline);
  const std::vector<std::string> texts = ranks.world->gather(packed(result, own), wait);
  if (ranks.is_first()) {
    result.ranks = {own};
    auto workers = static_cast<double>(result.timeline.active_workers());
    double idle = result.idle_share * workers;
    for (size_t r = 1; r < texts.size(); ++r) {
      const auto [share, count] = add(texts[r], result);
      idle += share * static_cast<double>(count);
      workers += static_cast<double>(count);
      result.peak_memory_bytes =
          std::max(result.peak_memory_bytes, result.ranks.back().peak_memory_bytes);
    }
    result.idle_share = workers > 0 ? idle / workers : 0;
  }
  collect_weights(ranks, result);
}

}  // namespace penstock::train

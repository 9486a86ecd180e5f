#include "penstock/runtime/fabric/mesh/mesh_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

enum class HubNote : uint8_t {
  Text,   ///< to rank 0: a rank's text of a round
  Texts,  ///< from rank 0: all of them
  Run,    ///< of a run
  Name,   ///< a text that a rank has published
  Call,   ///< of a name that somebody listens to
};

/// What the mesh says of a rank that has closed its connection as it should.
constexpr const char* kEnded = "has ended";
/// Where a rank breaks, others end because of it, and their end may be seen first.
constexpr std::chrono::milliseconds kForTheCause{500};

}  // namespace

MeshHub::MeshHub(std::unique_ptr<net::Mesh> mesh) : mesh_(std::move(mesh)) {
  mesh_->start({.note = [this](int peer, const std::string& note) { on_note(peer, note); },
                .lost = [this](int peer, const std::string& why) { on_lost(peer, why); }});
}

void MeshHub::on_note(int peer, const std::string& note) {
  net::WireReader in(note);
  switch (in.get<HubNote>()) {
    case HubNote::Text: {
      const auto round = in.get<Round>();
      const bool to_all = in.get<bool>();
      on_text(peer, round, to_all, std::string(in.rest()));
      return;
    }
    case HubNote::Texts: {
      MutexLock lock(mutex_);
      const auto round = in.get<Round>();
      std::map<int, std::string>& texts = texts_[round];
      for (int r = 0; r < ranks(); ++r) texts[r] = in.text();
      complete_.insert(round);
      changed_.notify_all();
      return;
    }
    case HubNote::Run: {
      const auto run = in.get<uint32_t>();
      return on_run_note(peer, run, std::string(in.rest()));
    }
    case HubNote::Name: {
      std::string name(in.text());
      MutexLock lock(mutex_);
      published_[std::move(name)] = in.rest();
      changed_.notify_all();
      return;
    }
    case HubNote::Call:
      return on_call(std::string(in.rest()));
  }
}

void MeshHub::on_run_note(int peer, uint32_t run, const std::string& note) {
  MutexLock delivery(delivery_);
  NoteReceiver* receiver = nullptr;
  {
    MutexLock lock(mutex_);
    if (run > run_) {
      early_[run].emplace_back(peer, note);
      return;
    }
    if (run == run_) receiver = receiver_;
  }
  if (receiver != nullptr) receiver->on_note(peer, note);
}

void MeshHub::on_call(const std::string& name) {
  MutexLock lock(calling_);
  const auto listener = listeners_.find(name);
  if (listener != listeners_.end())
    listener->second();
  else
    ++early_calls_[name];
}

void MeshHub::listen(const std::string& name, std::function<void()> on_call) {
  MutexLock lock(calling_);
  const auto early = early_calls_.extract(name);
  if (!on_call) {
    listeners_.erase(name);
    return;
  }
  for (int i = 0; !early.empty() && i < early.mapped(); ++i) on_call();
  listeners_[name] = std::move(on_call);
}

void MeshHub::call(int peer, const std::string& name) {
  net::WireWriter out;
  out.put(HubNote::Call);
  mesh_->tell(peer, out.take() + name);
}

void MeshHub::check_ranks() {
  MutexLock lock(mutex_);
  if (!lost_.empty()) refuse_lost();
}

void MeshHub::refuse_lost() {
  const auto broken = std::find_if(lost_.begin(), lost_.end(),
                                   [](const auto& entry) { return entry.second != kEnded; });
  const auto& [peer, why] = broken != lost_.end() ? *broken : *lost_.begin();
  throw TransportError(fmt::format("rank {} {}", peer, why));
}

void MeshHub::on_lost(int peer, const std::string& why) {
  MutexLock delivery(delivery_);
  NoteReceiver* receiver = nullptr;
  {
    MutexLock lock(mutex_);
    lost_[peer] = why;
    receiver = receiver_;
    changed_.notify_all();
  }
  if (receiver != nullptr) receiver->on_lost(peer, why);
}

void MeshHub::on_text(int peer, Round round, bool to_all, std::string text) {
  net::WireWriter out;
  out.put(HubNote::Texts);
  out.put(round);
  {
    MutexLock lock(mutex_);
    std::map<int, std::string>& texts = texts_[round];
    texts[peer] = std::move(text);
    if (static_cast<int>(texts.size()) < ranks()) return;
    for (const auto& [rank, of_rank] : texts) {
      if (to_all) out.text(of_rank);
    }
  }
  const std::string all = out.take();
  for (int r = 1; to_all && r < ranks(); ++r) mesh_->tell(r, all);
  // Only now: rank 0 may end as soon as it has the texts.
  MutexLock lock(mutex_);
  complete_.insert(round);
  changed_.notify_all();
}

bool MeshHub::has_broken_rank() const {
  return std::any_of(lost_.begin(), lost_.end(),
                     [](const auto& entry) { return entry.second != kEnded; });
}

std::string MeshHub::lost_rank(Round round) {
  std::string ended;
  for (const auto& [peer, why] : lost_) {
    // Others may have ended because of the one that did not end as it should.
    if (why != kEnded) return fmt::format("rank {} {}", peer, why);
    // One that has ended as it should is missed only by who still needs something of it.
    const bool needed = rank() == 0 ? !texts_[round].contains(peer) : peer == 0;
    if (needed && ended.empty()) ended = fmt::format("rank {} {}", peer, why);
  }
  return ended;
}

std::vector<std::string> MeshHub::all_gather(const std::string& text, Wait& wait, int channel) {
  return exchange(/*to_all=*/true, text, wait, channel);
}

std::vector<std::string> MeshHub::gather(const std::string& text, Wait& wait, int channel) {
  return exchange(/*to_all=*/false, text, wait, channel);
}

int MeshHub::next_channel() {
  MutexLock lock(mutex_);
  return channels_++;
}

std::vector<std::string> MeshHub::exchange(bool to_all, const std::string& text, Wait& wait,
                                           int channel) {
  if (ranks() == 1) return {text};
  Round round{.channel = channel};
  {
    MutexLock lock(mutex_);
    round.number = next_round_[channel]++;
  }
  if (rank() == 0) {
    on_text(0, round, to_all, text);
  } else {
    net::WireWriter out;
    out.put(HubNote::Text);
    out.put(round);
    out.put(to_all);
    mesh_->tell(0, out.take() + text);
    if (!to_all) return {};
  }
  const Stopwatch stopwatch(wait);
  MutexLock lock(mutex_);
  const auto complete = [&]() NO_THREAD_SAFETY_ANALYSIS { return complete_.contains(round); };
  changed_.wait_until(mutex_, wait.deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    return complete() || !lost_rank(round).empty();
  });
  if (!complete() && !lost_rank(round).empty()) {
    changed_.wait_until(
        mutex_, std::min(wait.deadline, std::chrono::steady_clock::now() + kForTheCause),
        [&]() NO_THREAD_SAFETY_ANALYSIS { return complete() || has_broken_rank(); });
  }
  if (!complete()) {
    if (const std::string lost = lost_rank(round); !lost.empty()) throw TransportError(lost);
    if (rank() != 0) throw TimeoutError("rank 0 did not answer in time");
    std::string missing;
    for (int r = 0; r < ranks(); ++r) {
      if (!texts_[round].contains(r))
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
    }
    throw TimeoutError(fmt::format("of the ranks, {} did not come in time", missing));
  }
  std::vector<std::string> result;
  for (auto& [peer, of_peer] : texts_[round]) result.push_back(std::move(of_peer));
  texts_.erase(round);
  complete_.erase(round);
  return result;
}

void MeshHub::publish(const std::string& name, const std::string& text) {
  net::WireWriter out;
  out.put(HubNote::Name);
  out.text(name);
  const std::string note = out.take() + text;
  for (int r = 0; r < ranks(); ++r) {
    if (r != rank()) mesh_->tell(r, note);
  }
  MutexLock lock(mutex_);
  published_[name] = text;
  changed_.notify_all();
}

std::string MeshHub::published(const std::string& name, Wait& wait) {
  const Stopwatch stopwatch(wait);
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, wait.deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    return published_.contains(name) || !lost_.empty();
  });
  if (const auto found = published_.find(name); found != published_.end()) return found->second;
  if (!lost_.empty()) refuse_lost();
  throw TimeoutError(fmt::format("no rank has said '{}' in time", name));
}

uint32_t MeshHub::next_run() {
  MutexLock lock(mutex_);
  return run_ + 1;
}

void MeshHub::begin_run(uint32_t run, NoteReceiver& receiver) {
  MutexLock delivery(delivery_);
  std::vector<std::pair<int, std::string>> early;
  std::map<int, std::string> lost;
  {
    MutexLock lock(mutex_);
    early = std::move(early_[run]);
    early_.clear();
    lost = lost_;
    run_ = run;
    receiver_ = &receiver;
  }
  for (const auto& [peer, note] : early) receiver.on_note(peer, note);
  for (const auto& [peer, why] : lost) receiver.on_lost(peer, why);
}

void MeshHub::end_run(uint32_t run) {
  {
    MutexLock delivery(delivery_);
    MutexLock lock(mutex_);
    if (run_ == run) receiver_ = nullptr;
  }
  mesh_->close_run(run);
}

void MeshHub::tell(int peer, uint32_t run, const std::string& note) {
  net::WireWriter out;
  out.put(HubNote::Run);
  out.put(run);
  mesh_->tell(peer, out.take() + note);
}

}  // namespace penstock::runtime

// What outlives the runs of one rank: the mesh, the exchange of texts, which ranks are lost, and to
// which run a note belongs. Internal to fabric/mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/device_link.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Gets what belongs to one run. Called on the mesh's thread: must neither block nor throw.
class NoteReceiver {
 public:
  virtual ~NoteReceiver() = default;
  virtual void on_note(int peer, const std::string& note) = 0;
  /// The rank cannot be reached any more.
  virtual void on_lost(int peer, const std::string& why) = 0;
};

/// Thread-safe.
class MeshHub {
 public:
  explicit MeshHub(std::unique_ptr<net::Mesh> mesh);

  net::Mesh& mesh() const { return *mesh_; }
  int rank() const { return mesh_->rank(); }
  int ranks() const { return mesh_->ranks(); }

  /// World::all_gather(): over rank 0. Throws TransportError when a rank is lost. Texts of one
  /// channel keep their order; those of several do not wait for each other.
  std::vector<std::string> all_gather(const std::string& text, Wait& wait, int channel = 0);
  /// World::gather(): to rank 0.
  std::vector<std::string> gather(const std::string& text, Wait& wait, int channel);
  /// A channel that nobody has; the same one on all ranks if they ask in the same order. 0 is
  /// never returned.
  int next_channel();

  /// Makes a text known to all ranks, under a name of which there is one in the job.
  void publish(const std::string& name, const std::string& text);
  /// The text of any rank, or this one's. Blocks until it is there; throws TransportError when a
  /// rank is lost, TimeoutError.
  std::string published(const std::string& name, Wait& wait);

  /// Links between GPUs are made by it from now on. All ranks call it, or none, between runs.
  void link_by(LinkMaker maker) { link_maker_ = std::move(maker); }
  const LinkMaker& link_maker() const { return link_maker_; }

  /// From now on the function is called for each call() of that name, on the mesh's thread; those
  /// that came before are made up for. Empty: nobody listens any more, and none is running.
  void listen(const std::string& name, std::function<void()> on_call);
  /// Calls whoever listens on the rank.
  void call(int peer, const std::string& name);
  /// Throws TransportError when a rank is lost.
  void check_ranks();

  /// The number of the next run, the same on all ranks if they begin the same ones.
  uint32_t next_run();
  /// Begins it. Notes that came early are handed over. The receiver must live until end_run().
  void begin_run(uint32_t run, NoteReceiver& receiver);
  /// After this the receiver gets nothing any more.
  void end_run(uint32_t run);
  /// Sends a note to the same run of another rank.
  void tell(int peer, uint32_t run, const std::string& note);

 private:
  /// One exchange of texts.
  struct Round {
    int64_t channel = 0;
    uint64_t number = 0;  ///< within the channel
    auto operator<=>(const Round&) const = default;
  };

  void on_note(int peer, const std::string& note);
  void on_run_note(int peer, uint32_t run, const std::string& note);
  void on_call(const std::string& name);
  void on_lost(int peer, const std::string& why);
  std::vector<std::string> exchange(bool to_all, const std::string& text, Wait& wait, int channel);
  void on_text(int peer, Round round, bool to_all, std::string text);
  /// A rank without which the round cannot be completed, and why; empty: none.
  std::string lost_rank(Round round) REQUIRES(mutex_);
  /// Whether one is lost that has not ended as it should.
  bool has_broken_rank() const REQUIRES(mutex_);
  [[noreturn]] void refuse_lost() REQUIRES(mutex_);

  LinkMaker link_maker_;
  /// Held while the receiver is called; taken before mutex_.
  Mutex delivery_;
  Mutex mutex_;
  CondVar changed_;
  std::map<int, std::string> lost_ GUARDED_BY(mutex_);  ///< rank: why
  int channels_ GUARDED_BY(mutex_) = 1;
  std::map<int, uint64_t> next_round_ GUARDED_BY(mutex_);  ///< by channel
  /// On rank 0: what has come of a round. Elsewhere only complete rounds.
  std::map<Round, std::map<int, std::string>> texts_ GUARDED_BY(mutex_);
  std::set<Round> complete_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> published_ GUARDED_BY(mutex_);
  /// Held while one of them is called.
  Mutex calling_;
  std::map<std::string, std::function<void()>> listeners_ GUARDED_BY(calling_);
  std::map<std::string, int> early_calls_ GUARDED_BY(calling_);
  uint32_t run_ GUARDED_BY(mutex_) = 0;
  NoteReceiver* receiver_ GUARDED_BY(mutex_) = nullptr;
  std::map<uint32_t, std::vector<std::pair<int, std::string>>> early_ GUARDED_BY(mutex_);
  /// Last, so that its thread ends before what it uses.
  std::unique_ptr<net::Mesh> mesh_;
};

}  // namespace penstock::runtime

// What outlives the runs of one rank: the mesh, the exchange of texts, which ranks are lost, and to
// which run a note belongs. Internal to fabric/mesh.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/mutex.h"

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

  /// World::all_gather(): over rank 0. Throws TransportError when a rank is lost.
  std::vector<std::string> all_gather(const std::string& text, Wait& wait);
  /// World::gather(): to rank 0.
  std::vector<std::string> gather(const std::string& text, Wait& wait);

  /// The number of the next run, the same on all ranks if they begin the same ones.
  uint32_t next_run();
  /// Begins it. Notes that came early are handed over.
  void begin_run(uint32_t run, const std::shared_ptr<NoteReceiver>& receiver);
  /// After this the receiver gets nothing any more.
  void end_run(uint32_t run);
  /// Sends a note to the same run of another rank.
  void tell(int peer, uint32_t run, const std::string& note);

 private:
  void on_note(int peer, const std::string& note);
  void on_lost(int peer, const std::string& why);
  std::vector<std::string> exchange(bool to_all, const std::string& text, Wait& wait);
  void on_text(int peer, uint64_t round, bool to_all, std::string text);
  /// A rank without which the round cannot be completed, and why; empty: none.
  std::string lost_rank(uint64_t round) REQUIRES(mutex_);

  /// Held while the receiver is called; taken before mutex_.
  Mutex delivery_;
  Mutex mutex_;
  CondVar changed_;
  std::map<int, std::string> lost_ GUARDED_BY(mutex_);  ///< rank: why
  uint64_t round_ GUARDED_BY(mutex_) = 0;
  /// On rank 0: what has come of a round. Elsewhere only complete rounds.
  std::map<uint64_t, std::map<int, std::string>> texts_ GUARDED_BY(mutex_);
  std::set<uint64_t> complete_ GUARDED_BY(mutex_);  ///< rounds
  uint32_t run_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<NoteReceiver> receiver_ GUARDED_BY(mutex_);
  std::map<uint32_t, std::vector<std::pair<int, std::string>>> early_ GUARDED_BY(mutex_);
  /// Last, so that its thread ends before what it uses.
  std::unique_ptr<net::Mesh> mesh_;
};

}  // namespace penstock::runtime

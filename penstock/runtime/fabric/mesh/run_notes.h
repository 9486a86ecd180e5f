// What the ranks of one run tell each other beside tensors. Internal to fabric/mesh.
//
//   notes.tell(0, NoteKind::Loss, mini_batch, micro_batch, stats);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"

namespace penstock::runtime {

enum class NoteKind : uint8_t {
  Loss,        ///< to rank 0: the loss of a micro-batch
  Fail,        ///< to all: the first failure of a rank
  AskStop,     ///< to rank 0
  Freeze,      ///< from rank 0
  Frozen,      ///< to rank 0: the last mini-batch that was begun
  Limit,       ///< from rank 0: the last mini-batch of the run
  Done,        ///< to rank 0: this rank's workers have ended
  End,         ///< from rank 0: how the run ended
  AskWorkers,  ///< what are your workers doing?
  Workers,     ///< this
};

/// Thread-safe.
class RunNotes {
 public:
  /// Takes the number of a run of the hub.
  explicit RunNotes(std::shared_ptr<MeshHub> hub) : hub_(std::move(hub)), run_(hub_->next_run()) {}

  MeshHub& hub() const { return *hub_; }
  uint32_t run() const { return run_; }
  int ranks() const { return hub_->ranks(); }
  bool is_first() const { return hub_->rank() == 0; }

  template <class... Values>
  void tell(int rank, NoteKind kind, const Values&... values) const {
    hub_->tell(rank, run_, net::wire_text(kind, values...));
  }
  /// All other ranks.
  template <class... Values>
  void tell_all(NoteKind kind, const Values&... values) const {
    const std::string note = net::wire_text(kind, values...);
    for (int r = 0; r < ranks(); ++r) {
      if (r != hub_->rank()) hub_->tell(r, run_, note);
    }
  }

 private:
  std::shared_ptr<MeshHub> hub_;
  uint32_t run_;
};

}  // namespace penstock::runtime

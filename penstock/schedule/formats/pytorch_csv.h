// The CSV that PyTorch's torch.distributed.pipelining reads and writes: a row per rank, one action
// per cell (`0F0`, `1SEND_B3`), an empty cell while the rank is idle.
//
//   ParsedCsv parsed = parse_pytorch_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "s.csv");
//   std::string text = to_pytorch_csv(parsed.schedule);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

struct ParsedCsv {
  Schedule schedule;
  /// For the user, one sentence each: what the file says and the schedule cannot hold.
  std::vector<std::string> notes;
};

/// Whose reader a file with messages is written for.
enum class PyTorchForm : uint8_t {
  To214,    ///< 2.14 and earlier: the step waits for all sends at its end
  From215,  ///< 2.15: each send, and each sum of gradients, has a WAIT of its own
};
/// Of "2.13", "2.15.0". Throws ConfigError for versions whose reader is not known.
PyTorchForm pytorch_form(std::string_view version);

/// Reads such a file, compute only or with sends and receives. Row w is worker w; stages,
/// worker_of_replica and micro-batches are inferred; all micro-batches form one mini-batch under
/// flush. Reads F, B, I, W, and the messages: a receive stands directly before the computation that
/// needs it, since PyTorch's only posts where it stands. (0F3;7B1)OVERLAP_F_B is an F with
/// Action::with_next. Other actions in such a cell come one after the other, with the sends of all
/// behind the last; a file of computations with such cells is lowered along the chain of its
/// stages. UNSHARD and RESHARD have no meaning here and are left out; so are WAIT_SEND_F,
/// WAIT_SEND_B and WAIT_REDUCE_GRAD, which have to stand behind what they wait for. A stage in r
/// rows has r replicas if each row holds micro-batches k, k + r, k + 2r, ... of it; otherwise the
/// file is refused. With sends and receives (or where none are needed), REDUCE_GRAD of a replicated
/// stage becomes SYNC in the same place, and missing SYNC, FREE and STEP are added to the end of
/// the lists. Throws ParseError as parse_schedule() does. O(actions log stages).
ParsedCsv parse_pytorch_csv(std::string_view text, std::string_view place);

/// Writes the schedule in these rows, without idle cells: compute only, or with messages if it is
/// lowered. STEP, FREE and NORM, which PyTorch leaves to the caller, are left out; SYNC of
/// replicated stages becomes REDUCE_GRAD. From 2.15 on a WAIT_SEND_F stands behind the backward of
/// its micro-batch, as PyTorch puts it, a WAIT_SEND_B at the end of the row, and a WAIT_REDUCE_GRAD
/// behind its REDUCE_GRAD. Throws ConfigError where the file would mean something
/// else: another weight policy than flush, several mini-batches, recomputation, messages between
/// stages that are not neighbours, fewer micro-batches than a stage has replicas, a worker without
/// actions, SYNC without gradients of weights.
std::string to_pytorch_csv(const Schedule& schedule, PyTorchForm form = PyTorchForm::To214);

/// Why PyTorch itself does not run a schedule that the CSV can hold: a stage on several workers, or
/// no backward pass. Nothing: it runs it.
std::optional<std::string> why_pytorch_refuses(const Schedule& schedule);

}  // namespace penstock::schedule

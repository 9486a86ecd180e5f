#include "penstock/schedule/action.h"

namespace penstock::schedule {

std::string_view to_string(Op op) {
  switch (op) {
    case Op::Forward:
      return "F";
    case Op::Backward:
      return "B";
    case Op::BackwardInput:
      return "I";
    case Op::BackwardWeight:
      return "W";
    case Op::Recompute:
      return "R";
    case Op::Offload:
      return "OFFLOAD";
    case Op::Load:
      return "LOAD";
    case Op::SendForward:
      return "SEND_F";
    case Op::RecvForward:
      return "RECV_F";
    case Op::SendBackward:
      return "SEND_B";
    case Op::RecvBackward:
      return "RECV_B";
    case Op::SyncGradients:
      return "SYNC";
    case Op::NormGradients:
      return "NORM";
    case Op::Step:
      return "STEP";
    case Op::FreeWeights:
      return "FREE";
  }
  return "?";
}

}  // namespace penstock::schedule

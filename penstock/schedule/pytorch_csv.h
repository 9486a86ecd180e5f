// The CSV that PyTorch's torch.distributed.pipelining writes: a row per rank, a cell per time step, `0F0`, `1SEND_B3`, empty while idle.
#pragma once

#include <string_view>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Throws ParseError as parse_schedule() does.
Schedule parse_pytorch_csv(std::string_view text, std::string_view place);

}  // namespace penstock::schedule

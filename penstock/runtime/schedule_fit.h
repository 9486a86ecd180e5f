// Whether a lowered schedule is one for this cut of this model. verify() proves a schedule sound in
// itself; it does not know the model.
#pragma once

#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

/// Whether anything of the schedule makes gradients.
bool trains(const schedule::Schedule& schedule);

/// Every value that crosses from worker to worker needs its message and no other message may be
/// there: otherwise a stage would compute without its inputs. Throws ConfigError naming the two
/// stages. O(actions * log stages).
void check_messages(const schedule::Schedule& schedule,
                    const std::vector<schedule::StageLink>& links);

}  // namespace penstock::runtime

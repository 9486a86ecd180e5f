// Whether a lowered schedule fits this cut of this model. verify() proves that a schedule is sound;
// it does not know the model.
#pragma once

#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::runtime {

/// Whether any action of the schedule makes gradients.
bool trains(const schedule::Schedule& schedule);

/// Every value that goes from one worker to another needs its message, and no other message may
/// exist: otherwise a stage would compute without its inputs. Throws ConfigError naming the two
/// stages. O(actions * log stages).
void check_messages(const schedule::Schedule& schedule,
                    const std::vector<schedule::StageLink>& links);

}  // namespace penstock::runtime

// What `penstock train --check-against-serial` prints.
#pragma once

#include <string>

#include "penstock/plan/plan.h"
#include "penstock/train/serial_check.h"

namespace penstock::job {

/// One JSON object and a newline.
std::string check_json(const plan::Plan& plan, const train::SerialCheck& check);
/// One line when everything is equal; otherwise the steps around the first difference.
std::string check_text(const plan::Plan& plan, const train::SerialCheck& check);

}  // namespace penstock::job

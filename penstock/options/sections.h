// What the sections of the table share. Internal to options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/options/rows.h"

namespace penstock::options {

/// Where a member of a section lies: at<&TrainRequest::run, &RunRequest::epochs>.
template <auto Part, auto Member>
Slot at(TrainRequest& request) {
  return &(request.*Part.*Member);
}
/// The same, of a flag that switches it off.
template <auto Part, auto Member>
Slot off(TrainRequest& request) {
  return Off{&(request.*Part.*Member)};
}

/// The rows of a section; those without a keyword in Python have this reason.
std::vector<Row> in(Section section, std::string_view not_in_python, std::vector<Row> rows);

std::vector<Row> plan_rows();
std::vector<Row> learning_rows();

}  // namespace penstock::options

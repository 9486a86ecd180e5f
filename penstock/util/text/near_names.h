// Which of some names one may have meant.
//
//   near_names("q_prj", {"k_proj", "q_proj", "up"}, 2);   // {"q_proj", "k_proj"}
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// At most so many of the names, the most similar first: by the number of characters to insert,
/// leave out or exchange. Pure; O(all characters * name's).
std::vector<std::string> near_names(const std::string& name, std::vector<std::string> names,
                                    size_t most = 8);

}  // namespace penstock

// compile_piece.py, embedded when the library is built. Internal to compiled.
#pragma once

#include <string_view>

namespace penstock::compiled {

std::string_view compile_script();

}  // namespace penstock::compiled

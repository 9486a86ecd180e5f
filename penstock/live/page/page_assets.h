// The page's files, embedded when the library is built. The style begins with that of the reports.
// Internal to the server.
#pragma once

#include <string_view>

namespace penstock::live {

std::string_view page_document();
std::string_view page_style();
std::string_view page_script();
std::string_view page_icon();

}  // namespace penstock::live

// The page's style and script: the files of page/, embedded when the library is built. Internal to
// the reports.
#pragma once

#include <string_view>

namespace penstock::report {

std::string_view page_style();
std::string_view page_script();
/// SHA-256 of page_script(), in hexadecimal.
std::string_view page_script_sha256();

}  // namespace penstock::report

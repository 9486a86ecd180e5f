// Measurements as text and JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "penstock/probe/measurement.h"
#include "penstock/util/files/json.h"

namespace penstock::probe {

/// Three significant digits, and at least `least`: more digits would not repeat in a second
/// measurement.
int64_t three_digits(double value, int64_t least);

/// "TCP bandwidth    3.84 GB/s   2.44 GB/s to 4.06 GB/s, 275 samples", with columns for a list.
std::string measurement_line(std::string_view what, const Measurement& measured,
                             const std::function<std::string(int64_t)>& format);

/// Median, quartiles and the number of samples.
Json measurement_json(const Measurement& measured);

/// Why it is doubtful; empty where the quartiles are close together.
std::string unsteady_note(std::string_view what, const Measurement& measured);

}  // namespace penstock::probe

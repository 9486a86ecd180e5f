// Run files of penstock train: what is accepted can be set, and is written so that it reads back.
#include "penstock/options/run_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace penstock::options;

std::map<std::string, std::string> values_of(const TrainRequest& request) {
  std::map<std::string, std::string> values;
  for (const Row& row : train_rows()) {
    // Relative paths are written as absolute ones.
    if (row.is_path == nullptr) values[std::string(row.name)] = text_of(row, request);
  }
  return values;
}

TrainRequest request_in(std::string_view text, const std::string& place) {
  TrainRequest request;
  for (const FileOption& option : parse_run_file<TrainRequest>(text, place)) {
    const Row& row = *find_row(option.name);
    set_text(row.slot(request), is_flag(row) ? "yes" : option.value);
  }
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  TrainRequest request;
  try {
    request = request_in(text, "fuzz");
  } catch (const penstock::ParseError&) {
    return 0;
  }
  const TrainRequest again = request_in(run_file_text(request, {}), "again");
  PENSTOCK_CHECK(values_of(again) == values_of(request));
  return 0;
}

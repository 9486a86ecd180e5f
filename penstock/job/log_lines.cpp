#include "penstock/job/log_lines.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/text/printable.h"

namespace penstock::job {

std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(since - whole).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(whole.count())), rest);
}

std::string log_line(options::LogForm form, std::chrono::system_clock::time_point time, int rank,
                     const LogRecord& record) {
  std::string message = record.message;
  while (message.ends_with('\n')) message.pop_back();
  if (form == options::LogForm::Json) {
    Json json = {
        {"time", utc_text(time)}, {"rank", rank}, {"level", record.level}, {"message", message}};
    if (record.fields.is_object()) json.update(record.fields);
    return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  }
  if (form == options::LogForm::Console) return message + "\n";
  const std::string head = fmt::format("{} rank {} {}: ", utc_text(time), rank, record.level);
  std::string text;
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    if (end > begin) text += head + printable(message.substr(begin, end - begin)) + '\n';
    begin = end + 1;
  }
  return text;
}

}  // namespace penstock::job

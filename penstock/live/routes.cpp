#include "penstock/live/routes.h"

#include <fmt/format.h>

#include <array>

#include "penstock/live/page/page_assets.h"
#include "penstock/util/check.h"

namespace penstock::live {
namespace {

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view (*content)();
};

constexpr std::array<PageFile, 4> kPageFiles{{
    {"/", "text/html; charset=utf-8", page_document},
    {"/page.css", "text/css; charset=utf-8", page_style},
    {"/page.js", "text/javascript; charset=utf-8", page_script},
    {"/icon.svg", "image/svg+xml", page_icon},
}};

Answer picture_answer(const Picture& picture, std::string_view known_tag) {
  if (picture.width <= 0 || picture.height <= 0) return typed_answer(204, "");
  PENSTOCK_CHECK(picture.channels == 1 || picture.channels == 3, picture.channels);
  PENSTOCK_CHECK(picture.pixels.size() / picture.channels / picture.width ==
                         static_cast<size_t>(picture.height) &&
                     picture.pixels.size() % picture.channels == 0,
                 picture.width, picture.height, picture.channels, picture.pixels.size());
  const std::string tag = picture.frame < 0 ? "" : fmt::format("\"{}\"", picture.frame);
  const bool is_known = !tag.empty() && tag == known_tag;
  Answer answer = typed_answer(is_known ? 304 : 200, is_known ? "" : "application/octet-stream");
  if (!tag.empty()) answer.headers.emplace_back("ETag", tag);
  if (is_known) return answer;
  answer.headers.emplace_back("Penstock-Width", fmt::to_string(picture.width));
  answer.headers.emplace_back("Penstock-Height", fmt::to_string(picture.height));
  answer.headers.emplace_back("Penstock-Channels", fmt::to_string(picture.channels));
  answer.headers.emplace_back("Penstock-Frame", fmt::to_string(picture.frame));
  answer.body.assign(picture.pixels.begin(), picture.pixels.end());
  return answer;
}

}  // namespace

Answer answer_to(const Request& request, const LiveSource& source, std::string_view host) {
  if (Answer refusal = checked(request, host); refusal.status != 200) return refusal;
  for (const PageFile& file : kPageFiles) {
    if (request.path != file.path) continue;
    Answer answer = typed_answer(200, file.type);
    answer.lasting_body = file.content();
    return answer;
  }
  if (request.path == "/state") {
    Answer answer = typed_answer(200, "application/json");
    answer.body = source.state();
    return answer;
  }
  if (request.path == "/input") return picture_answer(source.input(), request.known_tag);
  if (request.path == "/output") return picture_answer(source.output(), request.known_tag);
  return text_answer(404, "There is no such page.\n");
}

}  // namespace penstock::live

#include "penstock/live/routes.h"

#include <gtest/gtest.h>

#include <map>

#include "penstock/live/testing_source.h"
#include "penstock/util/error.h"

namespace penstock::live {
namespace {

Answer get(std::string_view path, const LiveSource& source = FixedSource(),
           std::string_view tag = "") {
  return answer_to({.method = "GET", .path = path, .host = "localhost", .known_tag = tag}, source,
                   "127.0.0.1");
}

std::map<std::string, std::string> headers_of(const Answer& answer) {
  return {answer.headers.begin(), answer.headers.end()};
}

TEST(Routes, ThePageAndItsPartsAreText) {
  EXPECT_NE(get("/").lasting_body.find("<!doctype html>"), std::string_view::npos);
  EXPECT_EQ(headers_of(get("/")).at("Content-Type"), "text/html; charset=utf-8");
  EXPECT_NE(get("/page.css").lasting_body.find("--forward"), std::string_view::npos);
  EXPECT_NE(get("/page.js").lasting_body.find("\"use strict\""), std::string_view::npos);
  EXPECT_NE(get("/icon.svg").lasting_body.find("<svg"), std::string_view::npos);
}

TEST(Routes, ThePageNamesNoOtherSite) {
  const std::string_view page = get("/").lasting_body;
  EXPECT_EQ(page.find("://"), std::string_view::npos);
  EXPECT_EQ(page.find("style="), std::string_view::npos);  // the policy would refuse it
}

TEST(Routes, TheStateIsWhatTheSourceSays) {
  FixedSource source;
  source.state_text = "{\"fps\": 3}";
  const Answer answer = get("/state", source);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"fps\": 3}");
  EXPECT_EQ(headers_of(answer).at("Content-Type"), "application/json");
}

TEST(Routes, APictureIsItsPixelsWithItsSizeInHeaders) {
  const Answer answer = get("/input");
  EXPECT_EQ(answer.body, "\1\2\3\4\5\6");
  const auto headers = headers_of(answer);
  EXPECT_EQ(headers.at("Penstock-Width"), "2");
  EXPECT_EQ(headers.at("Penstock-Height"), "1");
  EXPECT_EQ(headers.at("Penstock-Channels"), "3");
  EXPECT_EQ(headers.at("Penstock-Frame"), "7");
  EXPECT_EQ(headers.at("ETag"), "\"7\"");
}

TEST(Routes, AKnownPictureIsNotSentAgain) {
  const Answer answer = get("/input", FixedSource(), "\"7\"");
  EXPECT_EQ(answer.status, 304);
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(get("/input", FixedSource(), "\"6\"").status, 200);
}

TEST(Routes, NoPictureYetIsNoContent) { EXPECT_EQ(get("/output").status, 204); }

TEST(Routes, APictureWhosePixelsDoNotFitItsSizeIsAnInternalError) {
  FixedSource source;
  source.input_picture.pixels.pop_back();
  EXPECT_THROW(get("/input", source), InternalError);
  source.input_picture = {.width = 1, .height = 1, .channels = 2, .pixels = {1, 2}};
  EXPECT_THROW(get("/input", source), InternalError);
}

TEST(Routes, OtherPathsAreNotFound) {
  for (const char* path : {"", "/..", "/../etc/passwd", "/page.css/", "//", "/state/", "/STATE",
                           "http://localhost/", "*"})
    EXPECT_EQ(get(path).status, 404) << path;
}

TEST(Routes, OtherHostsAreRefusedBeforeTheSourceIsAsked) {
  const FixedSource source;
  const Answer answer =
      answer_to({.method = "GET", .path = "/state", .host = "evil.example", .known_tag = ""},
                source, "127.0.0.1");
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(source.asked, 0);
}

TEST(Routes, OtherMethodsAreRefused) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "X"}) {
    const Answer answer =
        answer_to({.method = method, .path = "/state", .host = "localhost", .known_tag = ""},
                  FixedSource(), "127.0.0.1");
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(headers_of(answer).at("Allow"), "GET, HEAD");
  }
}

TEST(Routes, EveryAnswerHasTheSecurityHeaders) {
  for (const char* path : {"/", "/page.js", "/state", "/input", "/output", "/none"}) {
    const auto headers = headers_of(get(path));
    EXPECT_EQ(headers.at("Content-Security-Policy").find("default-src 'self'"), 0) << path;
    EXPECT_EQ(headers.at("X-Content-Type-Options"), "nosniff") << path;
    EXPECT_EQ(headers.at("Cross-Origin-Resource-Policy"), "same-origin") << path;
  }
}

}  // namespace
}  // namespace penstock::live

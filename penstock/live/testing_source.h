// An invented stream that tests look at.
#pragma once

#include <atomic>
#include <string>

#include "penstock/live/live_source.h"

namespace penstock::live {

/// Answers what it is told to; counts how often it was asked.
class FixedSource : public LiveSource {
 public:
  std::string state() const override {
    ++asked;
    return state_text;
  }
  Picture input() const override { return input_picture; }
  Picture output() const override { return output_picture; }

  std::string state_text = "{\"title\": \"a stream\"}";
  Picture input_picture{
      .width = 2, .height = 1, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}, .frame = 7};
  Picture output_picture;
  mutable std::atomic<int> asked = 0;
};

}  // namespace penstock::live

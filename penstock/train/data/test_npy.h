// For tests: files of NumPy's as bytes.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/util/files/test_zip.h"

namespace penstock::train {

inline std::string make_npy(const std::string& type, const std::string& shape,
                            const std::string& numbers) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize((10 + header.size() + 64) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xFF);
  text += static_cast<char>(header.size() >> 8);
  return text + header + numbers;
}

inline std::string npy_of(const std::vector<float>& numbers, const std::string& shape) {
  return make_npy("<f4", shape,
                  {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)});
}

inline std::string npy_of_int64(const std::vector<int64_t>& numbers, const std::string& shape) {
  return make_npy(
      "<i8", shape,
      {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)});
}

}  // namespace penstock::train

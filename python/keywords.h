// The keywords of a call from Python as values of C++.
//
//   take_rows(options, request);
//   take(options, "groups", groups);
//   refuse_rest(options);
#pragma once

#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <type_traits>
#include <variant>

#include "penstock/options/rows.h"
#include "penstock/util/error.h"

namespace penstock::python {

namespace py = pybind11;

/// What a value of this type looks like in Python, for messages.
template <class T>
std::string wanted() {
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_integral_v<T>)
    return fmt::format("a whole number that {} bits hold", 8 * sizeof(T));
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  return "another value";
}
template <>
inline std::string wanted<std::optional<int64_t>>() {
  return wanted<int64_t>();
}

/// The value of a keyword. Throws ConfigError where it is none of that type.
template <class T>
T value_of(const std::string& keyword, const py::handle& value) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    throw ConfigError(fmt::format("{}: expected {}, found {}", keyword, wanted<T>(),
                                  py::repr(value).cast<std::string>()));
  }
}

/// Options come as keywords; each must be known.
template <class T>
void take(py::dict& options, const char* name, T& value) {
  if (!options.contains(name)) return;
  value = value_of<T>(name, options[name]);
  PyDict_DelItemString(options.ptr(), name);
}

inline void refuse_rest(const py::dict& options) {
  for (const auto& item : options)
    throw ConfigError(fmt::format("unknown option '{}'", item.first.cast<std::string>()));
}

/// The value of one keyword, into its place.
inline void take_value(const options::Slot& slot, const std::string& keyword,
                       const py::handle& value) {
  std::visit(
      [&](auto place) {
        using Place = decltype(place);
        if constexpr (std::is_same_v<Place, options::Named>) {
          place.set(value_of<std::string>(keyword, value));
        } else if constexpr (std::is_same_v<Place, options::Off>) {
          *place.value = !value_of<bool>(keyword, value);
        } else {
          *place = value_of<std::remove_pointer_t<Place>>(keyword, value);
        }
      },
      slot);
}

/// The keywords that are rows of penstock/options. None, and the empty word: not chosen.
inline void take_rows(py::dict& options, options::TrainRequest& request) {
  for (const options::Row& row : options::train_rows()) {
    const std::string keyword(row.keyword);
    if (keyword.empty() || !options.contains(keyword)) continue;
    const py::object value = options[keyword.c_str()];
    const bool chosen =
        !value.is_none() && !(py::isinstance<py::str>(value) && value.cast<std::string>().empty());
    if (chosen) take_value(row.slot(request), keyword, value);
    PyDict_DelItemString(options.ptr(), keyword.c_str());
  }
}

}  // namespace penstock::python

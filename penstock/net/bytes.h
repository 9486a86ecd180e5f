// Memory that goes out and memory that is filled, as plain spans.
#pragma once

#include <cstddef>
#include <span>

namespace penstock::net {

using Bytes = std::span<const std::byte>;
using Memory = std::span<std::byte>;

}  // namespace penstock::net

// A message whose receiver does not know the layout beforehand: the first part says what the others
// are. Internal to fabric/mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/net/wire.h"

namespace penstock::runtime {

/// Type and shape of a tensor, which may be undefined.
struct RawLayout {
  bool defined = false;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {};
};
RawLayout layout_of(const at::Tensor& tensor);
void put_layout(net::WireWriter& out, const RawLayout& layout);
RawLayout get_layout(net::WireReader& in);

/// Small tensors as part of a text.
void put_tensors(net::WireWriter& out, const model::Tensors& tensors);
model::Tensors get_tensors(net::WireReader& in);

/// A receive that has been posted.
struct RawMessage {
  std::shared_ptr<model::Tensors> parts;  ///< bytes; undefined where left out
  std::shared_ptr<net::Transfer> transfer;

  /// The first part.
  std::string_view head() const;
  /// Part i + 1 as a tensor of this type: [bytes / size of the type]; undefined where left out.
  at::Tensor tensor(size_t i, at::ScalarType type) const;
};

RawMessage post_raw(net::Mesh& mesh, int peer, net::Tag tag);
/// Tensors need not be contiguous.
std::shared_ptr<net::Transfer> send_raw(net::Mesh& mesh, int peer, net::Tag tag,
                                        const std::string& head, model::Tensors tensors,
                                        int urgency = 0);

}  // namespace penstock::runtime

#include "penstock/runtime/fabric/mesh/raw_message.h"

#include <ATen/Functions.h>

#include <cstring>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

void put_layout(net::WireWriter& out, const at::Tensor& tensor) {
  out.put<bool>(tensor.defined());
  if (!tensor.defined()) return;
  out.put(tensor.scalar_type());
  out.list(tensor.sizes().vec());
}

RawLayout get_layout(net::WireReader& in) {
  RawLayout layout{.defined = in.get<bool>()};
  if (!layout.defined) return layout;
  layout.type = in.get<at::ScalarType>();
  layout.sizes = in.list<int64_t>();
  return layout;
}

std::string_view RawMessage::head() const {
  const at::Tensor& head = parts->front();
  return {static_cast<const char*>(head.data_ptr()), head.nbytes()};
}

at::Tensor RawMessage::tensor(size_t i, at::ScalarType type) const {
  if (i + 1 >= parts->size()) throw TransportError("a message between ranks has too few tensors");
  const at::Tensor& part = (*parts)[i + 1];
  if (!part.defined()) return part;
  if (part.numel() % static_cast<int64_t>(c10::elementSize(type)) != 0)
    throw TransportError("a message between ranks has a tensor of another type");
  return part.view(type);
}

RawMessage post_raw(net::Mesh& mesh, int peer, net::Tag tag) {
  RawMessage message{.parts = std::make_shared<model::Tensors>(), .transfer = nullptr};
  message.transfer =
      mesh.receive(peer, tag, [parts = message.parts](const std::vector<uint64_t>& sizes) {
        if (sizes.empty() || sizes.front() == net::kAbsent)
          throw TransportError("sent a message without a head");
        std::vector<net::Memory> places;
        for (const uint64_t size : sizes) {
          at::Tensor& part = parts->emplace_back();
          if (size != net::kAbsent) part = at::empty({static_cast<int64_t>(size)}, at::kByte);
          places.push_back(memory_of(part));
        }
        return places;
      });
  return message;
}

void send_raw(net::Mesh& mesh, int peer, net::Tag tag, const std::string& head,
              model::Tensors tensors) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(head.size())}, at::kByte);
  if (!head.empty()) std::memcpy(bytes.data_ptr(), head.data(), head.size());
  tensors.insert(tensors.begin(), std::move(bytes));
  OutgoingTensors out(std::move(tensors));
  mesh.send(peer, tag, out.parts(), out.keep());
}

}  // namespace penstock::runtime

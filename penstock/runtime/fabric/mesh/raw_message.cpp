#include "penstock/runtime/fabric/mesh/raw_message.h"

#include <ATen/Functions.h>

#include <cstring>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

RawLayout layout_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.scalar_type(), tensor.sizes().vec()};
}

void put_layout(net::WireWriter& out, const RawLayout& layout) {
  out.put(layout.defined);
  if (!layout.defined) return;
  out.put(layout.type);
  out.list(layout.sizes);
}

RawLayout get_layout(net::WireReader& in) {
  RawLayout layout{.defined = in.get<bool>()};
  if (!layout.defined) return layout;
  layout.type = in.get<at::ScalarType>();
  layout.sizes = in.list<int64_t>();
  return layout;
}

void put_tensors(net::WireWriter& out, const model::Tensors& tensors) {
  out.put<uint64_t>(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor whole = tensor.defined() ? tensor.contiguous() : tensor;
    put_layout(out, layout_of(whole));
    if (whole.defined()) out.text({static_cast<const char*>(whole.data_ptr()), whole.nbytes()});
  }
}

model::Tensors get_tensors(net::WireReader& in) {
  model::Tensors tensors;
  const auto count = in.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    const RawLayout layout = get_layout(in);
    at::Tensor& tensor = tensors.emplace_back();
    if (!layout.defined) continue;
    tensor = at::empty(layout.sizes, at::TensorOptions(layout.type));
    const std::string_view bytes = in.text();
    if (bytes.size() != tensor.nbytes())
      throw TransportError("a message between ranks has a tensor of another size");
    if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  }
  return tensors;
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
        const model::MemoryScope scope(MemoryKind::Messages);
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

std::shared_ptr<net::Transfer> send_raw(net::Mesh& mesh, int peer, net::Tag tag,
                                        const std::string& head, model::Tensors tensors,
                                        int urgency) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(head.size())}, at::kByte);
  if (!head.empty()) std::memcpy(bytes.data_ptr(), head.data(), head.size());
  tensors.insert(tensors.begin(), std::move(bytes));
  OutgoingTensors out(std::move(tensors));
  return mesh.send(peer, tag, out.parts(), out.keep(), urgency);
}

}  // namespace penstock::runtime

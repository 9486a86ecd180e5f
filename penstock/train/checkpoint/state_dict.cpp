#include "penstock/train/checkpoint/state_dict.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>

#include <caffe2/serialize/inline_container.h>

#include <exception>

#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/check.h"

namespace penstock::train {
namespace {

/// On the CPU, contiguous, and alone in its storage: with a view, the whole storage would go into a
/// file.
at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor on_host = tensor.detach().to(at::kCPU).contiguous();
  return on_host.storage().nbytes() != on_host.nbytes() ? on_host.clone() : on_host;
}

void insert_buffers(StateDict& dict, const std::string& layer,
                    const std::vector<model::ParameterSpec>& specs,
                    const std::vector<at::Tensor>& tensors) {
  PENSTOCK_CHECK(specs.size() == tensors.size(), layer, specs.size(), tensors.size());
  for (size_t i = 0; i < specs.size(); ++i)
    dict.insert(model::state_key(layer, specs[i]), plain(tensors[i].to(specs[i].stored_as)));
}

/// A tied weight gets the tensor of its owner under another key, so that the archive holds it once
/// and torch.load makes one tensor of it.
void insert_weights(StateDict& dict, const model::Model& model, LayerId id,
                    const std::vector<at::Tensor>& tensors) {
  const auto key = [&](const graph::ParameterRef& ref) {
    return model::state_key(
        model.graph().layer(ref.layer).name,
        model.layer(ref.layer).parameters().at(static_cast<size_t>(ref.parameter)));
  };
  PENSTOCK_CHECK(model.layer(id).parameters().size() == tensors.size(), id, tensors.size());
  const std::vector<model::ParameterSpec> specs = model.layer(id).parameters();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const graph::ParameterRef ref{id, static_cast<int>(i)};
    const graph::ParameterRef owner = model.graph().owner(ref);
    dict.insert(key(ref),
                owner == ref ? plain(tensors[i].to(specs[i].stored_as)) : dict.at(key(owner)));
  }
}

/// Like torch::pickle_save, but directly to the file, without copies in memory, and without type
/// tags: then the file holds only a dict of tensors, which newer versions of torch.load require.
void write_archive(FileWriter& file, const StateDict& dict) {
  std::string pickle;
  torch::jit::Pickler pickler([&](const char* data, size_t bytes) { pickle.append(data, bytes); },
                              nullptr, nullptr, nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(c10::IValue(dict));
  pickler.stop();
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t bytes) -> size_t {
    // The archive's code is C, so no exception may pass through it.
    try {
      if (!failure) file.write(data, bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    return bytes;
  });
  archive.writeRecord("data.pkl", pickle.data(), pickle.size());
  size_t index = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    if (failure) break;
    archive.writeRecord(fmt::format("data/{}", index++), tensor.storage().data(), tensor.nbytes());
  }
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

StateDict state_dict(const model::Model& model, const std::vector<LayerState>& layers,
                     FrozenWeights frozen) {
  PENSTOCK_CHECK(static_cast<int>(layers.size()) == model.graph().num_layers(), layers.size());
  StateDict dict;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const LayerState& state = layers[static_cast<size_t>(i)];
    const std::string& layer = model.graph().layer(LayerId{i}).name;
    insert_weights(dict, model, LayerId{i}, state.weights);
    insert_buffers(dict, layer, model.layer(LayerId{i}).buffers(), state.buffers);
  }
  for (const model::ExtraTensor& extra : model.extra_state()) {
    if (dict.contains(extra.key)) continue;
    if (frozen == FrozenWeights::Without && !extra.frozen.empty()) continue;
    // What it is another name of may be frozen, and left out.
    const bool is_known = !extra.same_as.empty() && dict.contains(extra.same_as);
    dict.insert(extra.key, is_known ? dict.at(extra.same_as) : plain(extra.values()));
  }
  return dict;
}

FileRecord write_state_dict(const std::filesystem::path& folder, const std::string& name,
                            const StateDict& dict) {
  FileWriter file(folder / name);
  write_archive(file, dict);
  file.finish();
  return {name, file.bytes(), file.crc32()};
}

}  // namespace penstock::train

#include "penstock/train/checkpoint/adapter_files.h"

#include <fmt/format.h>

#include <vector>

#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/check.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/safetensors.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/plural.h"

namespace penstock::train {

namespace {

/// With the values that PEFT's LoraConfig has where nothing is said.
std::string config_text(const model::Adapters& adapters) {
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", nullptr},
                       {"base_model_name_or_path", nullptr},
                       {"r", adapters.rank},
                       {"lora_alpha", adapters.alpha},
                       {"target_modules", adapters.modules},
                       {"lora_dropout", 0.0},
                       {"bias", "none"},
                       {"fan_in_fan_out", adapters.has_transposed},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"inference_mode", true}};
  return config.dump(2) + "\n";
}

void write(const std::filesystem::path& path, const std::string& text) {
  FileWriter file(path);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace

std::string adapter_text(const model::Adapters& adapters) {
  std::string all;
  for (const std::string& module : adapters.modules) all += module + "\n";
  return fmt::format("rank {}, alpha {}, {} from '{}' to '{}' (digest {:08x})", adapters.rank,
                     adapters.alpha, plural(std::ssize(adapters.modules), "module"),
                     adapters.modules.front(), adapters.modules.back(),
                     static_cast<uint32_t>(hash_name(all)));
}

FileRecord write_adapters(const std::filesystem::path& folder, const model::Adapters& adapters,
                          const StateDict& dict) {
  std::vector<TensorInfo> infos;
  std::vector<at::Tensor> tensors;
  for (const std::string& module : adapters.modules) {
    for (const char* part : {"lora_A", "lora_B"}) {
      const std::string key = fmt::format("base_model.model.{}.{}.weight", module, part);
      PENSTOCK_CHECK(dict.contains(key), key);
      tensors.push_back(dict.at(key));
      PENSTOCK_CHECK(tensors.back().scalar_type() == at::kFloat, key);
      infos.push_back({.name = key, .shape = tensors.back().sizes().vec()});
    }
  }
  FileWriter file(folder / kAdapterWeights);
  const std::string header = make_safetensors_header(infos);
  file.write(header.data(), header.size());
  for (const at::Tensor& tensor : tensors) file.write(tensor.data_ptr(), tensor.nbytes());
  file.finish();
  write(folder / kAdapterConfig, config_text(adapters));
  return {kAdapterWeights, file.bytes(), file.crc32()};
}

}  // namespace penstock::train

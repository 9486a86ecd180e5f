// The devices that the workers of a process compute on, as `--device` names them: cpu, cuda,
// cuda:0,cuda:1, or a mixture such as cpu,cuda:0.
//
//   const std::vector<DeviceName> names = parse_device_names("cuda:0,cuda:1");
//   deal_devices(expand_devices(names, /*gpus=*/2), 4);   // workers 0, 1 on cuda:0, 2, 3 on cuda:1
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace penstock::cluster {

struct DeviceName {
  enum class Kind { Cpu, Cuda };
  Kind kind = Kind::Cpu;
  int index = -1;  ///< of a GPU, from 0; -1: all GPUs there are. Of the CPU: -1

  bool is_cpu() const { return kind == Kind::Cpu; }
  bool operator==(const DeviceName&) const = default;
};

/// "cpu", "cuda", "cuda:1".
std::string to_string(const DeviceName& name);

/// Comma-separated; a device that stands several times gets more workers. Throws ConfigError naming
/// the word that is none, or a list that names all GPUs and one of them.
std::vector<DeviceName> parse_device_names(const std::string& text);

/// The same with "cuda" replaced by each of the `gpus` GPUs. Throws ConfigError for a GPU that does
/// not exist, or when there is none.
std::vector<DeviceName> expand_devices(const std::vector<DeviceName>& names, int gpus);

/// The device of each worker: neighbours share one, in the order of the list. With more devices
/// than workers the first ones are used. The list is not empty.
std::vector<DeviceName> deal_devices(const std::vector<DeviceName>& devices, int workers);

}  // namespace penstock::cluster

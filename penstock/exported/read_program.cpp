#include <fmt/format.h>

#include "penstock/exported/program.h"
#include "penstock/exported/program_text.h"
#include "penstock/exported/weight_files.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/zip_archive.h"
#include "penstock/util/text/printable.h"

namespace penstock::exported {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 28;

class ProgramReader {
 public:
  explicit ProgramReader(const std::string& path) : archive_(path, "torch.export.save") {
    program_.path = path;
  }

  Program run() {
    find_folder();
    const std::string place = program_.path + ": models";
    read_program_text(archive_.read(model_member(), kMaxTextBytes), place, program_);
    read_tensors("data/weights/", "model_weights_config.json");
    read_tensors("data/constants/", "model_constants_config.json");
    const std::string reference = folder_ + "extra/penstock_weights.json";
    if (has(reference)) place_weights(archive_.read(reference, kMaxTextBytes), program_);
    return std::move(program_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(fmt::format("'{}' {}", printable(program_.path), why));
  }
  bool has(const std::string& name) const { return archive_.members().contains(name); }

  /// All members lie in one folder named after the file.
  void find_folder() {
    if (archive_.members().empty()) fail("is an empty archive");
    if (has("serialized_exported_program.json")) {
      fail(
          "was written by PyTorch 2.5 to 2.7, whose files hold pickled weights: export the model "
          "again with PyTorch 2.9 or newer");
    }
    const std::string& first = archive_.members().begin()->first;
    folder_ = first.substr(0, first.find('/') + 1);
    if (has(folder_ + "constants.pkl")) {
      fail("is a TorchScript file (torch.jit.save); expected one of torch.export.save");
    }
    if (has(folder_ + "data.pkl")) {
      fail(
          "was written by torch.save (weights, or a pickled module); expected a program of "
          "torch.export.save");
    }
    for (const auto& [name, member] : archive_.members()) {
      if (!member.is_deflated) continue;
      fail(
          fmt::format("compresses its member '{}'; torch.export.save does not, so it was packed "
                      "anew by another program",
                      printable(name)));
    }
    if (!has(folder_ + "archive_format") || archive_.read(folder_ + "archive_format", 100) != "pt2")
      fail("is a zip archive, but not one of torch.export.save");
    if (has(folder_ + "byteorder") && archive_.read(folder_ + "byteorder", 100) != "little")
      fail("holds big-endian numbers");
    if (has(folder_ + "data/weights/model.pt")) {
      fail(
          "was written by PyTorch 2.8, whose files hold pickled weights: export the model again "
          "with PyTorch 2.9 or newer");
    }
  }

  std::string model_member() const {
    const std::string prefix = folder_ + "models/";
    std::string found;
    for (const auto& [name, member] : archive_.members()) {
      if (!name.starts_with(prefix) || !name.ends_with(".json")) continue;
      if (!found.empty()) fail("holds several programs; expected one");
      found = name;
    }
    if (found.empty()) fail("holds no program (models/*.json)");
    return found;
  }

  void read_tensors(const std::string& below, const std::string& config) {
    const std::string name = folder_ + below + config;
    if (!has(name)) return;
    const std::string place = program_.path + ": " + below + config;
    const Json document = parse_json(archive_.read(name, kMaxTextBytes), place);
    const JsonReader root(document, place);
    const JsonReader entries = root.at("config");
    if (!entries.raw().is_object()) entries.fail("expected an object");
    for (const auto& [key, unused] : entries.raw().items()) {
      const JsonReader entry = entries.at(key);
      if (entry.at("use_pickle").boolean()) {
        fail(fmt::format("holds '{}' as a pickled Python object, which cannot be read here",
                         printable(key)));
      }
      StoredTensor tensor{.meta = read_tensor_meta(entry.at("tensor_meta")),
                          .is_parameter = entry.at("is_param").boolean(),
                          .name = key};
      for (const SymbolicInt& size : tensor.meta.sizes) {
        if (!size.is_number() || size.value < 0) entry.fail("expected sizes that are numbers");
      }
      const std::string member = folder_ + below + entry.at("path_name").text();
      const auto found = archive_.members().find(member);
      if (found == archive_.members().end())
        entry.fail(fmt::format("the member '{}' is missing", printable(member)));
      tensor.file_offset = found->second.offset;
      tensor.num_bytes = found->second.bytes;
      tensor.crc32 = found->second.crc32;
      tensor.in_state_dict = below == "data/weights/";
      program_.tensors.emplace(key, std::move(tensor));
    }
  }

  ZipArchive archive_;
  Program program_;
  std::string folder_;
};

}  // namespace

Program read_program(const std::string& path) { return ProgramReader(path).run(); }

}  // namespace penstock::exported

// Runs a fuzz target once on every file of the folders given: the saved inputs as an ordinary test,
// without libFuzzer.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "penstock/util/files/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> inputs;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      inputs.push_back(entry.path());
  }
  std::sort(inputs.begin(), inputs.end());
  if (inputs.empty()) {
    std::cerr << "usage: " << argv[0] << " FOLDER... (with at least one file)\n";
    return 2;
  }
  for (const auto& input : inputs) {
    try {
      const std::string bytes = penstock::read_file(input);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    } catch (const std::exception& error) {
      std::cerr << input << ": " << error.what() << '\n';
      return 1;
    }
  }
  std::cout << inputs.size() << " inputs replayed\n";
}

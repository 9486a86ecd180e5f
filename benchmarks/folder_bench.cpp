// Times reading a folder of images, one folder per class, as a training reads it:
//
//   folder_bench FOLDER SIDE CLASSES BATCH THREADS EPOCHS
//
// Prints the seconds from the start to the first batch, then the samples per second of each epoch;
// of the first one from the start on. benchmarks/folder_bench.py compares them with torchvision.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/data/prefetch.h"

namespace {

using namespace penstock;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run(const char* folder, const std::vector<int64_t>& numbers) {
  const int64_t side = numbers.at(0);
  const int64_t batch = numbers.at(2);
  const Clock::time_point begin = Clock::now();
  const train::DataSplit data = train::load_data(
      {.name = folder, .sample = train::labelled({3, side, side}, numbers.at(1)), .test_share = 0});
  const int64_t size = data.train->size();
  const train::BatchCut cut(size, batch, 1);
  for (int64_t epoch = 0; epoch < numbers.at(4); ++epoch) {
    const Clock::time_point start = epoch == 0 ? begin : Clock::now();
    const std::vector<int64_t> order = train::epoch_order(size, /*seed=*/1, epoch, true);
    const train::EpochBatches batches(*data.train, order, 0, cut, /*seed=*/1);
    const int threads = static_cast<int>(numbers.at(3));
    train::PrefetchOptions options{.order = {}, .threads = threads, .ahead = int64_t{2} * threads};
    for (int64_t b = 0; b < cut.num_micro_batches(); ++b) options.order.push_back(MicroBatchId{b});
    const train::PrefetchedBatches ahead(batches, std::move(options));
    int64_t samples = 0;
    for (int64_t b = 0; b < cut.num_micro_batches(); ++b) {
      samples += ahead.inputs(MicroBatchId{b}).front().size(0);
      samples += ahead.targets(MicroBatchId{b}).size(0);
      if (epoch == 0 && b == 0) std::printf("%.3f\n", seconds_since(begin));
    }
    std::printf("%.0f\n", static_cast<double>(samples / 2) / seconds_since(start));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 7) {
      std::fprintf(stderr, "usage: folder_bench FOLDER SIDE CLASSES BATCH THREADS EPOCHS\n");
      return 2;
    }
    std::vector<int64_t> numbers;
    for (int i = 2; i < argc; ++i) numbers.push_back(std::atoll(argv[i]));
    run(argv[1], numbers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "folder_bench: %s\n", error.what());
    return 3;
  }
  return 0;
}

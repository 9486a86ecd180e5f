// A worker that runs out of memory ends the run with an error, even when there is no memory for the
// error's own text. operator new is replaced so that a thread can be left without any.
#include <cstdlib>
#include <new>

#include "penstock/runtime/test_support.h"
#include "penstock/util/error.h"

namespace {

thread_local bool g_memory_left = true;

void* allocate(std::size_t bytes) {
  void* const memory = g_memory_left ? std::malloc(bytes == 0 ? 1 : bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
// Which std::stable_sort calls: what is freed below must come from here.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
  return operator new(bytes, tag);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock::runtime::testing {
namespace {

/// Uses up the memory of its thread for good.
class Hog : public model::Layer {
 public:
  std::string kind() const override { return "hog"; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan,
                         const model::ForwardContext&) const override {
    g_memory_left = false;
    throw std::bad_alloc();
  }
};

TEST(OutOfMemory, AWorkerWithoutMemoryForItsErrorEndsTheRun) {
  model::ModelBuilder net("hungry");
  model::Value x = net.input({8});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc1"}));
  x = net.apply(std::make_shared<Hog>(), {x}, "hog").front();
  const model::Model model = net.build(net.linear(x, {.features = 4, .name = "fc2"}));
  const Case setup{.kind = plan::Strategy::ModelParallel, .replicas = {1, 1}};
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, 2), setup.replicas, *optimizer, {});
  try {
    pipeline.run(make_schedule(setup, batches, pipeline), batches,
                 {.learning_rate = [](int64_t) { return 0.1; }});
    FAIL() << "the run has not failed";
  } catch (const RuntimeError& error) {
    EXPECT_STREQ(error.what(), "worker 1 failed: out of memory");
  }
}

}  // namespace
}  // namespace penstock::runtime::testing

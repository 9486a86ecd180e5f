#include "penstock/job/large_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/imported/import_model.h"
#include "penstock/model/residual_norms.h"
#include "penstock/train/trainer.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {
namespace {

constexpr int64_t kWarmupEpochs = 5;
const std::string kLeftOut = "left out, as asked";

/// The parts of one call of set_large_batch().
class LargeBatch {
 public:
  LargeBatch(options::TrainRequest& request, model::Model& model, int64_t samples)
      : request_(request),
        model_(model),
        rules_(*request.large_batch.rules),
        batch_(request.run.batch_size.value_or(options::kUsualBatchSize)),
        samples_(samples) {}

  std::vector<LargeBatchNote> notes() {
    if (!rules_.scale || !rules_.warmup) request_.rates.scale_steps = 0;
    note("scale", rules_.scale, [this] { return scale(); });
    note("warmup", rules_.warmup, [this] { return warmup(); });
    note("statistics", rules_.statistics, [this] { return statistics(); });
    note("momentum", rules_.momentum, [this] { return momentum(); });
    note("decay", rules_.decay, [this] { return decay(); });
    note("gamma", rules_.gamma, [this] { return gamma(); });
    return std::move(notes_);
  }

 private:
  struct Said {
    bool is_set;
    std::string text;
  };

  template <class Rule>
  void note(const std::string& name, bool is_on, const Rule& rule) {
    const Said said = is_on ? rule() : Said{false, kLeftOut};
    notes_.push_back({name, said.text, said.is_set});
  }

  double ratio() const {
    return static_cast<double>(batch_) / static_cast<double>(request_.large_batch.base);
  }

  /// LAMB's paper scales with the root (You et al. 2020, section 4).
  Said scale() {
    const bool by_root = request_.optimizer.kind == model::OptimizerKind::Lamb;
    double& scale = request_.rates.scale;
    scale = by_root ? std::sqrt(ratio()) : ratio();
    return {scale != 1,
            fmt::format("the learning rate {:g} times {:.4g}{}: {} samples a step "
                        "instead of {}",
                        request_.rates.base, scale, by_root ? ", the root of the ratio" : "",
                        batch_, request_.large_batch.base)};
  }

  Said warmup() {
    const bool is_left = request_.rates.warmup_steps > 0;
    if (request_.rates.scale <= 1 || is_left) request_.rates.scale_steps = 0;
    if (request_.rates.scale <= 1) return {false, "nothing to do: the learning rate does not grow"};
    if (is_left)
      return {false, fmt::format("left to --lr-warmup, {} steps", request_.rates.warmup_steps)};
    int64_t& steps = request_.rates.scale_steps;
    std::string epochs;
    if (steps == 0 && samples_ == 0)
      throw ConfigError(
          "large_batch: the warm-up needs scale_steps, such as the steps of 5 epochs; "
          "'all,-warmup' goes without");
    if (steps == 0) {
      steps = saturating_mul(kWarmupEpochs, train::mini_batches_per_epoch(
                                                samples_, options::train_options_of(request_)));
      epochs = fmt::format(", {} epochs", kWarmupEpochs);
    }
    return {true, fmt::format("from the rate {:g} on over the first {}{}", request_.rates.base,
                              plural(steps, "step"), epochs)};
  }

  Said statistics() {
    if (!model::has_batch_norm(model_.graph()))
      return {false, "nothing to do: the model has no batch norm"};
    std::optional<int64_t>& parts = request_.plan.micro_batches;
    if (parts || !request_.plan.file.empty()) {
      return {false, parts ? fmt::format("those of each of {} micro-batches, as asked", *parts)
                           : std::string("those of the plan's micro-batches")};
    }
    const int64_t wanted = ceil_div(batch_, request_.large_batch.base);
    if (wanted <= 1) return {false, "nothing to do: a step has no more samples than a base step"};
    parts = wanted;
    return {true, fmt::format("of {} samples: a step has {} micro-batches, each with its own, on "
                              "whatever replica",
                              ceil_div(batch_, wanted), wanted)};
  }

  Said momentum() {
    const model::OptimizerKind kind = request_.optimizer.kind;
    if (kind == model::OptimizerKind::Sgd && request_.optimizer.momentum > 0) {
      return {true,
              "sums gradients without the rate (equation 9), so a rate that changes needs no "
              "correction"};
    }
    if (kind == model::OptimizerKind::Lars)
      return {false, "left as it is: lars has the rate inside, as its paper says"};
    return {false, fmt::format("nothing to do: {} has no momentum of this kind", to_string(kind))};
  }

  Said decay() {
    const double decay = request_.optimizer.weight_decay;
    if (decay == 0) return {false, "nothing to do: no weight decays (--weight-decay is 0)"};
    return {true, fmt::format("{:g} for weights of two dimensions and more; none for norms and "
                              "biases",
                              decay)};
  }

  Said gamma() {
    if (request_.model.name.empty() || imported::is_program_file(request_.model.name))
      return {false, "left out: an imported model begins with the weights of its file"};
    const std::vector<LayerId> norms = model::last_norms(model_.graph());
    for (const LayerId norm : norms) model_.begin_with({norm, 0}, model::Init::constant(0));
    if (norms.empty()) return {false, "nothing to do: no residual block ends with a batch norm"};
    return {true, fmt::format("{} begin with 0: {} to {}",
                              plural(static_cast<int64_t>(norms.size()), "norm"),
                              model_.graph().layer(norms.front()).name,
                              model_.graph().layer(norms.back()).name)};
  }

  options::TrainRequest& request_;
  model::Model& model_;
  const options::LargeBatchRules rules_;
  int64_t batch_;
  int64_t samples_;
  std::vector<LargeBatchNote> notes_;
};

}  // namespace

std::vector<LargeBatchNote> set_large_batch(options::TrainRequest& request, model::Model& model,
                                            int64_t training_samples) {
  if (!request.large_batch.rules) return {};
  return LargeBatch(request, model, training_samples).notes();
}

}  // namespace penstock::job

#include "penstock/imported/lstm_units.h"

#include <ATen/Functions.h>

#include <numeric>
#include <utility>

#include "penstock/model/layers/linear_product.h"
#include "penstock/model/layers/lstm_sequence.h"
#include "penstock/model/lone_team.h"

namespace penstock::imported {
namespace {

constexpr int64_t kRowsOfUnit = 4;  // of each gate one

std::vector<int64_t> units_of_members(const TeamStep& step) {
  std::vector<int64_t> units = step.lengths;
  for (int64_t& length : units) length /= kRowsOfUnit;
  return units;
}

}  // namespace

void run_lstm_of_units(const TeamStep& step, std::vector<c10::IValue>& call, model::Team& team) {
  // input, hidden states and cells, weights, has_biases, layers, dropout, train, bidirectional,
  // batch_first
  const bool batch_first = call[8].toBool();
  const auto in_batches = [&](const at::Tensor& x) { return batch_first ? x : x.transpose(0, 1); };
  const at::Tensor input = in_batches(call[0].toTensor());
  const std::vector<at::Tensor> states = call[1].toTensorVector();
  const std::vector<at::Tensor> weights = call[2].toTensorVector();
  const std::vector<int64_t> units = units_of_members(step);
  const auto own = units.begin() + team.member();
  const at::Tensor cells =
      states[1].narrow(2, std::accumulate(units.begin(), own, int64_t{0}), *own);
  const size_t directions = call[7].toBool() ? 2 : 1;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> last_hidden;
  std::vector<at::Tensor> last_cells;
  for (size_t d = 0; d < directions; ++d) {
    const at::Tensor* const weight = &weights[d * weights.size() / directions];
    const auto turned = [&](const at::Tensor& x) { return d == 0 ? x : x.flip(1); };
    const at::Tensor bias = call[3].toBool() ? at::add(weight[2], weight[3]) : at::Tensor();
    const at::Tensor gates = model::linear(turned(input), weight[0], bias);
    const auto place = static_cast<int64_t>(d);
    const model::LstmRun run = model::lstm_sequence(
        gates, weight[1], {states[0].select(0, place), cells.select(0, place)}, {&team, units});
    outputs.push_back(turned(run.hidden));
    last_hidden.push_back(run.hidden.select(1, run.hidden.size(1) - 1));
    last_cells.push_back(run.last.cell);
  }
  call = {in_batches(directions == 1 ? outputs[0] : at::cat(outputs, 2)), at::stack(last_hidden),
          at::stack(last_cells)};
}

std::unique_ptr<model::Team> lone_team(const TeamStep& step) {
  const std::vector<int64_t> units = units_of_members(step);
  int member = 0;
  int64_t before = 0;
  while (!step.runs.empty() && before < step.runs.front().begin)
    before += units.at(static_cast<size_t>(member++));
  return std::make_unique<model::LoneTeam>(static_cast<int>(units.size()), member);
}

}  // namespace penstock::imported

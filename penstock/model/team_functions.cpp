#include "penstock/model/team_functions.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>

#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Crossing : uint8_t { Keep, Sum, Gather, Part, SumPart };

/// Of all members, where `x` is whole or (`is_whole` false) one member's part.
std::vector<int64_t> lengths_in(const at::Tensor& x, const Team& team, const Division& division,
                                bool is_whole) {
  if (!division.lengths.empty()) return division.lengths;
  const int64_t members = team.size();
  const int64_t length = x.size(division.dimension);
  if (is_whole && length % members != 0) {
    throw ConfigError(fmt::format(
        "a team of {} cannot share out a sequence of {} places (sequence parallelism): expected a "
        "multiple of {}; pad or cut sequences to such a length, or train without it",
        members, length, members));
  }
  return std::vector<int64_t>(static_cast<size_t>(members), is_whole ? length / members : length);
}

at::Tensor own_part(const at::Tensor& x, const Team& team, const Division& division) {
  const std::vector<int64_t> lengths = lengths_in(x, team, division, /*is_whole=*/true);
  int64_t begin = 0;
  for (int m = 0; m < team.member(); ++m) begin += lengths[static_cast<size_t>(m)];
  return x.narrow(division.dimension, begin, lengths[static_cast<size_t>(team.member())])
      .contiguous();
}

at::Tensor cross(Crossing crossing, const at::Tensor& x, Team& team, const Division& division) {
  switch (crossing) {
    case Crossing::Keep:
      return x;
    case Crossing::Sum:
      return team.sum(x);
    case Crossing::Gather:
      return team.gather(x, division.dimension, lengths_in(x, team, division, /*is_whole=*/false));
    case Crossing::Part:
      return own_part(x, team, division);
    case Crossing::SumPart:
      return team.sum_part(x, division.dimension, lengths_in(x, team, division, /*is_whole=*/true));
  }
  return x;
}

/// What a backward pass needs beside the gradient.
struct Way {
  Crossing forward;
  Crossing backward;
  Team* team;
  Division division;
};

class Cross : public torch::autograd::Function<Cross> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Way& way) {
    context->saved_data["backward"] = static_cast<int64_t>(way.backward);
    context->saved_data["team"] = reinterpret_cast<int64_t>(way.team);
    context->saved_data["dimension"] = way.division.dimension;
    context->saved_data["lengths"] = way.division.lengths;
    if (way.forward == Crossing::Keep) return x.view_as(x);
    return cross(way.forward, x, *way.team, way.division);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const auto crossing = static_cast<Crossing>(context->saved_data["backward"].toInt());
    auto* const team = reinterpret_cast<Team*>(context->saved_data["team"].toInt());
    const Division division{context->saved_data["dimension"].toInt(),
                            context->saved_data["lengths"].toIntVector()};
    return {cross(crossing, gradients[0], *team, division), at::Tensor()};
  }
};

class SumCopies : public torch::autograd::Function<SumCopies> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Team* team,
                            int64_t first, int64_t count) {
    context->saved_data["team"] = reinterpret_cast<int64_t>(team);
    context->saved_data["first"] = first;
    context->saved_data["count"] = count;
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    auto* const team = reinterpret_cast<Team*>(context->saved_data["team"].toInt());
    const int64_t first = context->saved_data["first"].toInt();
    const int64_t end = first + context->saved_data["count"].toInt();
    const at::Tensor own = gradients[0].contiguous();
    // Members of other groups get nothing.
    std::vector<at::Tensor> parts;
    std::vector<std::vector<int64_t>> sizes;
    for (int64_t m = 0; m < team->size(); ++m) {
      const bool shares = m >= first && m < end;
      parts.push_back(shares ? own : own.new_empty({0}));
      sizes.push_back(parts.back().sizes().vec());
    }
    const std::vector<at::Tensor> copies = team->exchange(std::move(parts), sizes);
    at::Tensor sum = copies[static_cast<size_t>(first)].clone();
    for (int64_t m = first + 1; m < end; ++m) sum.add_(copies[static_cast<size_t>(m)]);
    return {sum, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor crossed(const at::Tensor& x, const Way& way) { return Cross::apply(x, way); }

}  // namespace

at::Tensor sum_copies(const at::Tensor& x, Team& team, int64_t first, int64_t count) {
  return SumCopies::apply(x, &team, first, count);
}

at::Tensor sum_forward(const at::Tensor& x, Team& team) {
  return crossed(x, {Crossing::Sum, Crossing::Keep, &team, {}});
}

at::Tensor sum_backward(const at::Tensor& x, Team& team) {
  return crossed(x, {Crossing::Keep, Crossing::Sum, &team, {}});
}

at::Tensor gather(const at::Tensor& x, Team& team, const Division& division) {
  return crossed(x, {Crossing::Gather, Crossing::Part, &team, division});
}

at::Tensor part(const at::Tensor& x, Team& team, const Division& division) {
  return crossed(x, {Crossing::Part, Crossing::Gather, &team, division});
}

at::Tensor gather_sum(const at::Tensor& x, Team& team, const Division& division) {
  return crossed(x, {Crossing::Gather, Crossing::SumPart, &team, division});
}

at::Tensor sum_part(const at::Tensor& x, Team& team, const Division& division) {
  return crossed(x, {Crossing::SumPart, Crossing::Gather, &team, division});
}

}  // namespace penstock::model

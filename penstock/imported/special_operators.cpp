#include "penstock/imported/special_operators.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "penstock/imported/known_operators.h"
#include "penstock/model/batch_limits.h"
#include "penstock/util/error.h"

namespace penstock::imported {

at::Tensor dropout_mask(at::IntArrayRef sizes, const at::Tensor& like, double probability,
                        at::Generator generator) {
  at::Tensor mask = at::empty(sizes, like.options().dtype(at::kFloat));
  mask.bernoulli_(1 - probability, std::move(generator));
  if (probability < 1) mask.mul_(1 / (1 - probability));
  return mask.to(like.options());
}

at::Tensor attention(const std::vector<c10::IValue>& arguments, const at::Tensor& keep) {
  const at::Tensor query = arguments[0].toTensor();
  at::Tensor key = arguments[1].toTensor();
  at::Tensor value = arguments[2].toTensor();
  if (arguments.size() > 7 && !arguments[7].isNone() && arguments[7].toBool()) {
    key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  const double scale = arguments.size() > 6 && !arguments[6].isNone()
                           ? arguments[6].toScalar().toDouble()
                           : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  if (arguments.size() > 5 && !arguments[5].isNone() && arguments[5].toBool()) {
    const at::Tensor visible =
        at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(visible.logical_not(), -INFINITY);
  }
  at::Tensor unseen;  // queries that see nothing: their result is zero
  if (arguments.size() > 3 && !arguments[3].isNone()) {
    const at::Tensor mask = arguments[3].toTensor();
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), -INFINITY)
                                             : scores + mask;
    unseen = (scores == -INFINITY).all(-1, true);
    scores = scores.masked_fill(unseen, 0);
  }
  at::Tensor shares = at::softmax(scores, -1);
  if (unseen.defined()) shares = shares.masked_fill(unseen, 0);
  if (keep.defined()) shares = shares * keep;
  return at::matmul(shares, value);
}

namespace {

using Values = std::vector<c10::IValue>;

/// self, dim, keepdim
Values smallest_and_largest(const Values& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  std::vector<int64_t> dims;
  if (!arguments[1].isNone()) dims.push_back(arguments[1].toInt());
  const bool keeps = arguments[2].toBool();
  return {at::amin(self, dims, keeps), at::amax(self, dims, keeps)};
}

/// self, groups
Values shuffled_channels(const Values& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const int64_t groups = arguments[1].toInt();
  return {self.unflatten(1, std::vector<int64_t>{groups, self.size(1) / groups})
              .transpose(1, 2)
              .flatten(1, 2)};
}

/// self, dim, start, length
Values narrowed_copy(const Values& arguments) {
  return {arguments[0]
              .toTensor()
              .narrow(arguments[1].toInt(), arguments[2].toInt(), arguments[3].toInt())
              .clone()};
}

}  // namespace

WrittenOut written_out(std::string_view target) {
  if (is(target, "aminmax")) return smallest_and_largest;
  if (is(target, "channel_shuffle")) return shuffled_channels;
  if (is(target, "narrow_copy")) return narrowed_copy;
  return nullptr;
}

void check_batch_norm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  if (!arguments[5].toBool() || input.dim() < 2 || input.numel() > input.size(1)) return;
  throw RuntimeError(fmt::format("{}: take larger micro-batches", model::kOneNumberPerChannel));
}

}  // namespace penstock::imported

#include "penstock/runtime/fabric/local/local_team.h"

#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/schedule/team_places.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

LocalTeam::LocalTeam(int members)
    : members_(static_cast<size_t>(members)), given_(2 * members_ * members_) {}

LocalTeam::Given& LocalTeam::given(int64_t number, int from, int to) {
  const auto turn = static_cast<size_t>(number % 2);
  return given_[(turn * members_ + static_cast<size_t>(from)) * members_ + static_cast<size_t>(to)];
}

void LocalTeam::give(const TeamExchange& exchange, int to, at::Tensor part) {
  const uint64_t signature =
      signature_of(exchange, {.sizes = part.sizes().vec(), .type = part.scalar_type()});
  MutexLock lock(mutex_);
  if (closed_) return;
  Given& place = given(exchange.number, exchange.member, to);
  PENSTOCK_CHECK(!place.part.defined(), "member", to, "has not taken what it was given before",
                 exchange.number);
  place = {std::move(part), signature};
  changed_.notify_all();
}

WaitResult LocalTeam::take(const TeamExchange& exchange, int from, const TensorLayout& expected,
                           at::Tensor& part, Wait& wait) {
  Given taken;
  {
    const Stopwatch stopwatch(wait);
    MutexLock lock(mutex_);
    Given& place = given(exchange.number, from, exchange.member);
    const bool ready = changed_.wait_awake_until(
        mutex_, wait.deadline,
        [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_ || place.part.defined(); });
    if (closed_) return WaitResult::Closed;
    if (!ready) return WaitResult::TimedOut;
    taken = std::move(place);
    place = {};
  }
  check_given(exchange, from, expected, taken.signature);
  part = std::move(taken.part);
  return WaitResult::Ready;
}

void LocalTeam::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

LocalTeams::LocalTeams(const schedule::ScheduleShape& shape) {
  const schedule::TeamPlaces places(shape.teams);
  for (int32_t s = 0; s < shape.num_stages(); ++s) {
    const schedule::TeamPlace place = places.of(StageId{s});
    if (place.size == 1 || place.member > 0) continue;
    for (int r = 0; r < shape.replicas[static_cast<size_t>(s)]; ++r)
      teams_[{place.first, r}] = std::make_unique<LocalTeam>(place.size);
  }
}

LocalTeam& LocalTeams::team(const TeamExchange& exchange) const {
  const auto found = teams_.find({exchange.first, exchange.replica});
  PENSTOCK_CHECK(found != teams_.end(), "stage", exchange.first, "has no team");
  return *found->second;
}

void LocalTeams::start_exchange(const TeamExchange& exchange, model::Tensors parts,
                                const std::vector<TensorLayout>&) {
  LocalTeam& members = team(exchange);
  for (size_t m = 0; m < parts.size(); ++m) {
    const auto to = static_cast<int>(m);
    if (to != exchange.member) members.give(exchange, to, std::move(parts[m]));
  }
}

void LocalTeams::close() {
  for (const auto& [place, team] : teams_) team->close();
}

}  // namespace penstock::runtime

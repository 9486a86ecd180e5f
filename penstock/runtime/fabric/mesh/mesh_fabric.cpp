#include "penstock/runtime/fabric/mesh/mesh_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

namespace {

/// Waits for all ranks, which must have the same schedule. Returns when the run began, on this
/// rank's clock: on rank 0's clock, when the last rank has come.
int64_t meet(MeshHub& hub, const RunSetup& setup, Wait& wait) {
  size_t actions = 0;
  for (const auto& of_worker : setup.schedule.workers) actions += of_worker.size();
  const int64_t offset = hub.mesh().clock_offset(0).ns;
  net::WireWriter out;
  out.text(
      fmt::format("{} stages on {} workers, {} micro-batches, {} actions, {} credits, {} in {}{}",
                  setup.schedule.shape.num_stages(), setup.schedule.workers.size(),
                  setup.schedule.shape.micro_batches, actions, setup.credits,
                  plan::to_string(setup.sync), to_string(setup.gradient_precision),
                  setup.codings.empty() ? "" : ", messages in " + setup.codings));
  out.put<int64_t>(steady_ns() + offset);
  const std::vector<std::string> texts = hub.all_gather(out.take(), wait);
  net::WireReader first(texts.front());
  const std::string_view expected = first.text();
  int64_t begin = 0;
  for (size_t r = 0; r < texts.size(); ++r) {
    net::WireReader other(texts[r]);
    const std::string_view found = other.text();
    if (found != expected) {
      throw RuntimeError(fmt::format("the ranks run different schedules: rank 0 has {}, rank {} {}",
                                     expected, r, found));
    }
    begin = std::max(begin, other.get<int64_t>());
  }
  return begin - offset;
}

}  // namespace

MeshRun::MeshRun(std::shared_ptr<MeshHub> hub, Site site, const RunSetup& setup)
    : notes_(std::move(hub)),
      site_(std::move(site)),
      stop_(notes_, setup.stop),
      losses_(setup.schedule.shape.num_mini_batches(), setup.mini_batch_samples,
              [this, go_on = setup.on_mini_batch](MiniBatchId t, const MiniBatchStats& stats) {
                if (go_on && !go_on(t, stats)) stop_.ask();
              }),
      reports_(notes_, site_, setup.schedule.shape),
      end_(notes_, reports_, stop_, losses_, [this]() { close(); }) {
  notes_.hub().begin_run(notes_.run(), *this);
}

MeshRun::~MeshRun() {
  notes_.hub().end_run(notes_.run());
  if (sums_) sums_->stop();
}

void MeshRun::open(const RunSetup& setup, Wait& wait) {
  net::Mesh& mesh = notes_.hub().mesh();
  channels_ = std::make_unique<MeshChannels>(mesh, notes_.run(), site_, setup);
  teams_ = std::make_unique<MeshTeams>(mesh, notes_.run(), channels_->channels(), site_,
                                       setup.schedule.shape);
  sums_ = std::make_unique<MeshRunSums>(
      mesh, notes_.run(), channels_->channels() + teams_->channels(), site_, setup,
      [this](std::exception_ptr failure) { fail(std::move(failure)); });
  channels_->start();
  sums_->start();
  end_.open();
  origin_ns_ = meet(notes_.hub(), setup, wait);
}

void MeshRun::close() {
  if (channels_) channels_->close();
  if (teams_) teams_->close();
  if (sums_) sums_->close();
  stop_.close();
  notes_.hub().mesh().close_run(notes_.run());
}

WaitResult MeshRun::combine(NormShare share, NormTotals& totals, Wait& wait) {
  const MiniBatchId mini_batch = share.mini_batch;
  const WaitResult result = sums_->combine(std::move(share), totals, wait);
  if (result == WaitResult::Ready && notes_.is_first()) losses_.set_norm(mini_batch, totals.norm);
  return result;
}

void MeshRun::report(MiniBatchId mini_batch, MicroBatchId micro_batch, const MiniBatchStats& part) {
  if (notes_.is_first())
    losses_.add(mini_batch, micro_batch, part);
  else
    notes_.tell(0, NoteKind::Loss, mini_batch, micro_batch, part);
}

void MeshRun::on_loss(net::WireReader& in) {
  const auto mini_batch = in.get<MiniBatchId>();
  const auto micro_batch = in.get<MicroBatchId>();
  try {
    losses_.add(mini_batch, micro_batch, in.get<MiniBatchStats>());
  } catch (...) {
    fail(std::current_exception());
  }
}

void MeshRun::on_lost(int peer, const std::string& why) {
  reports_.on_lost(peer, why);
  end_.on_lost(peer, why);
}

void MeshRun::on_note(int peer, const std::string& note) {
  net::WireReader in(note);
  switch (in.get<NoteKind>()) {
    case NoteKind::Loss:
      return on_loss(in);
    case NoteKind::Fail:
      return end_.on_fail(in);
    case NoteKind::AskStop:
      return stop_.on_ask();
    case NoteKind::Freeze:
      return stop_.on_freeze();
    case NoteKind::Frozen:
      return stop_.on_frozen(in.get<int64_t>());
    case NoteKind::Limit:
      return stop_.on_limit(in.get<int64_t>());
    case NoteKind::Done:
      return end_.on_done(peer, in);
    case NoteKind::End:
      return end_.on_end(in);
    case NoteKind::AskWorkers:
      return notes_.tell(peer, NoteKind::Workers, reports_.own());
    case NoteKind::Workers:
      return reports_.on_answer(peer, std::string(in.text()));
  }
}

}  // namespace penstock::runtime

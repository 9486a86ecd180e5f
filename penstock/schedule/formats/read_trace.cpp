#include "penstock/schedule/formats/read_trace.h"

#include "penstock/schedule/formats/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/printable.h"

namespace penstock::schedule {

namespace {

constexpr int kMaxDepth = 200;
constexpr double kMaxMicroseconds = 9e12;  // as nanoseconds below 2^53: exact in a double

enum class Key : uint8_t {
  Name,
  Phase,
  Category,
  Start,
  Duration,
  Process,
  Thread,
  Stage,
  MicroBatch,
  MiniBatch,
  Peer,
  Version,
  WithNext,
  Waiting,
  Bucket,
  Worker,
  Server
};
constexpr size_t kNumKeys = 17;

struct KnownKey {
  std::string_view name;
  bool in_args;
  Key key;
};
constexpr KnownKey kKnownKeys[] = {{"ph", false, Key::Phase},
                                   {"cat", false, Key::Category},
                                   {"ts", false, Key::Start},
                                   {"dur", false, Key::Duration},
                                   {"pid", false, Key::Process},
                                   {"tid", false, Key::Thread},
                                   {"stage", true, Key::Stage},
                                   {"micro_batch", true, Key::MicroBatch},
                                   {"mini_batch", true, Key::MiniBatch},
                                   {"peer", true, Key::Peer},
                                   {"version", true, Key::Version},
                                   {"with_next", true, Key::WithNext},
                                   {"waiting_us", true, Key::Waiting},
                                   {"bucket", true, Key::Bucket},
                                   {"worker", true, Key::Worker},
                                   {"server", true, Key::Server},
                                   {"name", true, Key::Name}};

std::string_view name_of(Key key) {
  for (const KnownKey& known : kKnownKeys) {
    if (known.key == key) return known.name;
  }
  return "?";
}

std::optional<Op> op_of(std::string_view name) {
  for (auto code = static_cast<uint8_t>(Op::Forward); code <= static_cast<uint8_t>(Op::FreeWeights);
       ++code) {
    if (to_string(static_cast<Op>(code)) == name) return static_cast<Op>(code);
  }
  return std::nullopt;
}

/// The values of one event of the trace, for the keys that we know.
struct RawEvent {
  std::string name = {};  ///< args.name of an event that names a process
  std::string phase = {};
  std::string category = {};
  double numbers[kNumKeys] = {};
  bool has[kNumKeys] = {};
  bool names_process = false;
};

/// Puts events into timelines.
class TraceBuilder {
 public:
  explicit TraceBuilder(std::string_view place) : place_(place) {}

  void add(const RawEvent& raw) {
    raw_ = &raw;
    if (raw.phase == "M" && raw.names_process) {
      timeline_of_process().source = printable(std::string_view(raw.name).substr(0, 200));
    } else if (raw.phase == "X") {
      if (raw.category == kSumCategory)
        add_sum();
      else
        add_action();
    }
    ++index_;
  }

  std::vector<Timeline> take() {
    for (Timeline& timeline : timelines_) {
      for (auto& events : timeline.workers) {
        std::stable_sort(
            events.begin(), events.end(),
            [](const TimelineEvent& a, const TimelineEvent& b) { return a.start_ns < b.start_ns; });
      }
      for (SumLane& lane : timeline.sums) {
        std::stable_sort(
            lane.events.begin(), lane.events.end(),
            [](const SumEvent& a, const SumEvent& b) { return a.start_ns < b.start_ns; });
      }
    }
    std::erase_if(timelines_, [](const Timeline& timeline) { return timeline.workers.empty(); });
    return std::move(timelines_);
  }

  [[noreturn]] void fail(std::string_view message) const {
    throw ParseError(place_, 0, fmt::format("event {}: {}", index_, message));
  }

 private:
  Timeline& timeline_of_process() {
    const int64_t process = integer(Key::Process, 0, INT32_MAX);
    const auto [entry, is_new] = timeline_index_.try_emplace(process, timelines_.size());
    if (is_new) {
      if (timelines_.size() >= kMaxTraceTimelines)
        fail(fmt::format("expected at most {} processes (\"pid\")", kMaxTraceTimelines));
      timelines_.push_back({fmt::format("process {}", process), {}});
    }
    return timelines_[entry->second];
  }

  void count_event() {
    if (++num_events_ > kMaxTraceEvents)
      fail(fmt::format("expected at most {} actions", kMaxTraceEvents));
  }

  void add_sum() {
    count_event();
    SumEvent event{.stage = StageId{static_cast<int32_t>(integer(Key::Stage, 0, INT32_MAX))},
                   .mini_batch = MiniBatchId{integer(Key::MiniBatch, 0, INT32_MAX)},
                   .bucket = static_cast<int32_t>(integer(Key::Bucket, 0, INT32_MAX)),
                   .start_ns = nanoseconds(Key::Start, -kMaxMicroseconds)};
    event.end_ns = event.start_ns + nanoseconds(Key::Duration, 0);
    const bool of_worker = raw_->has[static_cast<size_t>(Key::Worker)];
    const auto number = static_cast<int32_t>(
        integer(of_worker ? Key::Worker : Key::Server, 0, kMaxTraceWorkers - 1));
    std::vector<SumLane>& lanes = timeline_of_process().sums;
    const SumLane wanted{.worker = WorkerId{of_worker ? number : -1},
                         .server = of_worker ? -1 : number};
    auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const SumLane& other) {
      return other.worker == wanted.worker && other.server == wanted.server;
    });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), wanted);
    lane->events.push_back(event);
  }

  void add_action() {
    const std::optional<Op> op = op_of(raw_->category);
    if (!op) {
      fail(
          fmt::format("expected the name of an action in \"cat\" such as F or SEND_B, found '{}': "
                      "only traces that penstock wrote can be read",
                      shortened(raw_->category, 40)));
    }
    count_event();
    TimelineEvent event;
    Action& action = event.action;
    action.op = *op;
    action.stage = StageId{static_cast<int32_t>(integer(Key::Stage, 0, INT32_MAX))};
    action.micro_batch = MicroBatchId{integer_or(Key::MicroBatch, 0, 0)};
    action.mini_batch = MiniBatchId{integer_or(Key::MiniBatch, 0, 0)};
    action.peer = StageId{static_cast<int32_t>(integer_or(Key::Peer, action.stage.value, 0))};
    action.with_next = integer_or(Key::WithNext, 0, 0) != 0;
    action.version = WeightVersion{integer_or(Key::Version, -1, -1)};
    event.start_ns = nanoseconds(Key::Start, -kMaxMicroseconds);
    event.end_ns = event.start_ns + nanoseconds(Key::Duration, 0);
    event.waiting_ns =
        raw_->has[static_cast<size_t>(Key::Waiting)] ? nanoseconds(Key::Waiting, 0) : 0;
    event.waiting_ns = std::min(event.waiting_ns, event.end_ns - event.start_ns);
    auto& workers = timeline_of_process().workers;
    const auto worker = static_cast<size_t>(integer(Key::Thread, 0, kMaxTraceWorkers - 1));
    if (worker >= workers.size()) workers.resize(worker + 1);
    workers[worker].push_back(event);
  }

  double number(Key key) const {
    if (!raw_->has[static_cast<size_t>(key)])
      fail(fmt::format("the key \"{}\" is missing", name_of(key)));
    return raw_->numbers[static_cast<size_t>(key)];
  }
  int64_t integer(Key key, int64_t least, int64_t most) const {
    const double value = number(key);
    if (!(value >= static_cast<double>(least) && value <= static_cast<double>(most)) ||
        value != std::floor(value)) {
      fail(fmt::format("expected an integer from {} to {} in \"{}\", found {}", least, most,
                       name_of(key), value));
    }
    return static_cast<int64_t>(value);
  }
  int64_t integer_or(Key key, int64_t otherwise, int64_t least) const {
    return raw_->has[static_cast<size_t>(key)] ? integer(key, least, INT32_MAX) : otherwise;
  }
  int64_t nanoseconds(Key key, double least) const {
    const double value = number(key);
    if (!(value >= least && value <= kMaxMicroseconds)) {
      fail(fmt::format("expected microseconds from {} to {} in \"{}\", found {}", least,
                       kMaxMicroseconds, name_of(key), value));
    }
    return nearest(value * 1000);
  }

  std::string_view place_;
  const RawEvent* raw_ = nullptr;
  std::vector<Timeline> timelines_;
  std::map<int64_t, size_t> timeline_index_;
  int64_t num_events_ = 0;
  int64_t index_ = 0;
};

/// Follows the parser down to the events. They are the elements of the array "traceEvents", or of
/// the document if that is an array.
class TraceReader : public nlohmann::json_sax<Json> {
 public:
  TraceReader(std::string_view text, std::string_view place)
      : text_(text), place_(place), builder_(place) {}

  std::vector<Timeline> take() {
    if (!found_events_)
      throw ParseError(
          place_, 0,
          "expected a trace: an object with the key \"traceEvents\", or an array of events");
    return builder_.take();
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool binary(binary_t&) override { return other("bytes"); }
  bool number_integer(number_integer_t value) override {
    return on_number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return on_number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return on_number(value); }

  bool string(string_t& value) override {
    if (!in_event()) return scalar_outside();
    if (!in_args() && key_name_ == "name") {
      event_.names_process = value == "process_name";
    } else if (const std::optional<Key> key = known_key()) {
      if (!is_text(*key))
        builder_.fail(fmt::format("expected a number in \"{}\", found text", name_of(*key)));
      (*key == Key::Name    ? event_.name
       : *key == Key::Phase ? event_.phase
                            : event_.category) = std::move(value);
    }
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1 && name == "traceEvents" && events_depth_ == 0) next_is_events_ = true;
    if (depth_ == event_depth() || in_args()) key_name_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override {
    refuse_events_of_another_kind();
    if (in_event() && depth_ == event_depth()) args_ = key_name_ == "args";
    open();
    if (depth_ == event_depth()) event_ = {};
    return true;
  }
  bool end_object() override {
    if (depth_ == event_depth()) builder_.add(event_);
    return close();
  }
  bool start_array(std::size_t) override {
    const bool holds_events = events_depth_ == 0 && (depth_ == 0 || next_is_events_);
    refuse_events_of_another_kind(holds_events);
    open();
    if (holds_events) {
      events_depth_ = depth_;
      found_events_ = true;
    }
    return true;
  }
  bool end_array() override {
    if (depth_ == events_depth_) events_depth_ = -1;  // only one list of events is read
    return close();
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_syntax(text_, place_, position, error.what());
  }

 private:
  int event_depth() const { return events_depth_ > 0 ? events_depth_ + 1 : -1; }
  bool in_event() const { return events_depth_ > 0 && depth_ > events_depth_; }
  bool in_args() const { return in_event() && args_ && depth_ == event_depth() + 1; }
  static bool is_text(Key key) {
    return key == Key::Name || key == Key::Phase || key == Key::Category;
  }

  std::optional<Key> known_key() const {
    if (depth_ != event_depth() && !in_args()) return std::nullopt;
    for (const KnownKey& known : kKnownKeys) {
      if (known.in_args == in_args() && known.name == key_name_) return known.key;
    }
    return std::nullopt;
  }

  bool on_number(double value) {
    if (!in_event()) return scalar_outside();
    const std::optional<Key> key = known_key();
    if (!key) return true;
    if (is_text(*key))
      builder_.fail(fmt::format("expected text in \"{}\", found {}", name_of(*key), value));
    event_.numbers[static_cast<size_t>(*key)] = value;
    event_.has[static_cast<size_t>(*key)] = true;
    return true;
  }

  bool other(std::string_view what) {
    if (!in_event()) return scalar_outside();
    if (const std::optional<Key> key = known_key()) {
      builder_.fail(fmt::format("expected {} in \"{}\", found {}",
                                is_text(*key) ? "text" : "a number", name_of(*key), what));
    }
    return true;
  }

  bool scalar_outside() {
    refuse_events_of_another_kind();
    return true;
  }

  /// "traceEvents" is a list, and its elements are objects.
  void refuse_events_of_another_kind(bool holds_events = false) {
    if (next_is_events_ && !holds_events)
      throw ParseError(place_, 0, "traceEvents: expected an array");
    next_is_events_ = false;
  }

  void open() {
    if (++depth_ > kMaxDepth)
      throw ParseError(place_, 0,
                       fmt::format("values are nested deeper than {} levels", kMaxDepth));
  }
  bool close() {
    if (depth_ == event_depth() + 1) args_ = false;
    --depth_;
    return true;
  }

  std::string_view text_;
  std::string_view place_;
  TraceBuilder builder_;
  RawEvent event_;
  std::string key_name_;
  int depth_ = 0;
  /// Of the array that holds the events; 0: not reached yet, -1: already read.
  int events_depth_ = 0;
  bool found_events_ = false;
  bool next_is_events_ = false;
  bool args_ = false;
};

}  // namespace

std::vector<Timeline> parse_trace(std::string_view json, std::string_view place) {
  TraceReader reader(json, place);
  Json::sax_parse(json, &reader);
  return reader.take();
}

}  // namespace penstock::schedule

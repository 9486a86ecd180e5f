#include "penstock/launch/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::launch {

namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
/// More than any pipe holds: a process that left the rank's group may keep writing.
constexpr int kMostReadsAfterEnd = 64;

FileDescriptor open_log(const std::filesystem::path& path, bool append) {
  const int mode = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC);
  FileDescriptor log(open(path.c_str(), mode, 0666));
  if (!log.is_open())
    throw ConfigError(fmt::format("cannot write '{}': {}", path.string(), std::strerror(errno)));
  return log;
}

/// A full disk must not end the job: what cannot be written is left out of the copy.
void write_copy(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

}  // namespace

Relay::Relay(FileDescriptor from, OutputQueue& to, std::optional<LinePrefixer> prefixer, int copy)
    : from_(std::move(from)), to_(&to), prefixer_(std::move(prefixer)), copy_(copy) {}

bool Relay::pass_on_some() {
  if (!from_.is_open()) return false;
  std::array<char, kReadBytes> buffer;  // NOLINT(*-member-init): read() fills it
  const ssize_t size = read(from_.get(), buffer.data(), buffer.size());
  if (size < 0) return errno == EINTR;
  if (size == 0) {
    from_.reset();
    return false;
  }
  pass_on({buffer.data(), static_cast<size_t>(size)});
  return true;
}

void Relay::pass_on(std::string_view bytes) {
  if (copy_ >= 0) write_copy(copy_, bytes);
  if (!prefixer_) return to_->add(bytes);
  prefixer_->add(bytes, [this](std::string_view line) { to_->add(line); });
}

void Relay::finish() {
  for (int i = 0; i < kMostReadsAfterEnd && pass_on_some(); ++i) continue;
  from_.reset();
  if (prefixer_) prefixer_->finish([this](std::string_view line) { to_->add(line); });
}

RankOutput::RankOutput(int rank, const std::filesystem::path& log_dir, bool append,
                       OutputQueue& output, OutputQueue& error) {
  if (!log_dir.empty()) log_ = open_log(log_dir / fmt::format("rank_{}.log", rank), append);
  if (rank == 0 && log_.is_open()) {
    child_output_ = add_relay(output, std::nullopt);
    child_error_ = add_relay(error, std::nullopt);
  } else if (log_.is_open()) {
    child_output_ = child_error_ = log_.get();
  } else if (rank != 0) {
    child_output_ = child_error_ = add_relay(error, LinePrefixer(fmt::format("[rank {}] ", rank)));
  }
}

int RankOutput::add_relay(OutputQueue& to, std::optional<LinePrefixer> prefixer) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw RuntimeError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  FileDescriptor from(ends[0]);
  child_ends_.emplace_back(ends[1]);
  fcntl(from.get(), F_SETFL, O_NONBLOCK);  // the rank's end stays as it is
  relays_.emplace_back(std::move(from), to, std::move(prefixer), log_.get());
  return ends[1];
}

void RankOutput::started() {
  child_ends_.clear();
  if (relays_.empty()) log_.reset();
}

void RankOutput::finish() {
  for (Relay& relay : relays_) relay.finish();
  log_.reset();
}

}  // namespace penstock::launch

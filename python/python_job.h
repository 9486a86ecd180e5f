// The job of a program in Python, as penstock._core has it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/job/job.h"
#include "penstock/net/fabric_kind.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "python/interpreter.h"
#include "python/of_this_process.h"

namespace penstock::python {

/// The job that a launcher (torchrun) has made this process a rank of.
class PythonJob {
 public:
  /// Null: this process is no rank of several. Blocks until all ranks are there.
  static std::shared_ptr<PythonJob> join(const std::string& fabric,
                                         const std::optional<std::string>& tls) {
    std::atomic<bool> stop{false};
    job::JobOptions options{.command = "a program in Python",
                            .fabric = net::parse_fabric(fabric),
                            .stop = &stop,
                            .listener = job::console_listener()};
    if (tls) options.tls = net::parse_tls(*tls);
    std::unique_ptr<job::Job> job =
        interruptibly(stop, [&options] { return job::Job::join(options); });
    if (job == nullptr) return nullptr;
    return std::make_shared<PythonJob>(std::move(job));
  }

  explicit PythonJob(std::unique_ptr<job::Job> job) : job_(std::move(job)) {}

  job::Job& job() const { return *job_; }
  int rank() const { return job_->rank(); }
  int ranks() const { return job_->ranks(); }
  int training_ranks() const { return job_->ranks() - job_->servers(); }

  void check_same(const std::string& what, const std::string& text) {
    const WithoutGil without;
    job_->check_same(what, text);
  }
  void check_same_file(const std::string& what, const std::string& path) {
    const WithoutGil without;
    const std::vector<std::string> crcs = job_->together(
        [&] { return fmt::format("one of CRC {:08x}", crc32_of(read_file(path, INT64_MAX))); });
    job_->check_same(what, crcs.at(static_cast<size_t>(rank())));
  }

  /// Rank 0's text, on every rank.
  std::string from_first(const std::string& text) {
    const WithoutGil without;
    return job_->from_first([&] { return text; });
  }

  /// Rank 0's file at `path` becomes a file at `path` on every rank; with a trouble, which only
  /// rank 0 may have, all ranks throw.
  void share_file(const std::string& path, const std::string& trouble) {
    constexpr size_t kPart = size_t{64} << 20;
    const WithoutGil without;
    std::string content;
    const std::string size = job_->from_first([&] {
      if (!trouble.empty()) throw RuntimeError(trouble);
      content = read_file(path, INT64_MAX);
      return fmt::to_string(content.size());
    });
    std::string received;
    for (size_t at = 0; at < std::stoull(size); at += kPart)
      received += job_->from_first([&] { return content.substr(at, kPart); });
    if (!job_->is_first()) write_file_atomic(path, received);
  }

 private:
  OfThisProcess<job::Job> job_;
};

}  // namespace penstock::python

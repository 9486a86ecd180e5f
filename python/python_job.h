// The job of a program in Python, as penstock._core has it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/job/job.h"
#include "penstock/net/fabric_kind.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/input_file.h"
#include "penstock/util/files/zip_archive.h"
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
  /// Of a .pt2 file, whose directory has the check sums of what is in it: weights are not read.
  void check_same_file(const std::string& what, const std::string& path) {
    const WithoutGil without;
    const std::vector<std::string> crcs = job_->together([&] {
      const ZipArchive archive(path, "torch.export.save");
      std::string all;
      for (const auto& [name, member] : archive.members())
        all += fmt::format("{} {} {}\n", name, member.bytes, member.crc32);
      return fmt::format("one of CRC {:08x}", crc32_of(all));
    });
    job_->check_same(what, crcs.at(static_cast<size_t>(rank())));
  }

  /// Rank 0's text, on every rank.
  std::string from_first(const std::string& text) {
    const WithoutGil without;
    return job_->from_first([&] { return text; });
  }

  /// Rank 0's file at `path` becomes a file at `path` on every rank; with a trouble, which only
  /// rank 0 may have, all ranks throw. Piece by piece: no rank has all of it in memory.
  void share_file(const std::string& path, const std::string& trouble) {
    constexpr size_t kPart = size_t{16} << 20;
    const WithoutGil without;
    std::optional<InputFile> file;
    const std::string size = job_->from_first([&] {
      if (!trouble.empty()) throw RuntimeError(trouble);
      return fmt::to_string(file.emplace(path).size().value_or(0));
    });
    const std::string half = path + ".part";  // a file at `path` is whole
    std::ofstream out;
    if (!job_->is_first()) out.open(half, std::ios::binary);
    for (size_t at = 0; at < std::stoull(size); at += kPart) {
      const std::string part = job_->from_first([&] {
        std::string read(kPart, '\0');
        read.resize(file->read(read.data(), read.size()));
        return read;
      });
      out.write(part.data(), static_cast<std::streamsize>(part.size()));
    }
    if (job_->is_first()) return;
    out.close();
    std::error_code error;
    if (out) std::filesystem::rename(half, path, error);
    if (!out || error) {
      std::filesystem::remove(half, error);
      throw RuntimeError(fmt::format(
          "cannot write the model to '{}', as rank 0 has it: is there room on the disk?", path));
    }
  }

 private:
  OfThisProcess<job::Job> job_;
};

}  // namespace penstock::python

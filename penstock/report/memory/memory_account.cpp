#include "penstock/report/memory/memory_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

constexpr int64_t kMostWorkers = 4096;
constexpr int64_t kMostProcesses = 4096;
constexpr size_t kMostInText = 8;
/// Of one number in a file: what is added up of them stays within 64 bits.
constexpr int64_t kMostBytes = INT64_MAX / 64;

MemoryKind kind_at(size_t place) { return static_cast<MemoryKind>(place); }

Json kinds_json(const MemoryBytes& bytes) {
  Json json = Json::object();
  // Threads that count at the same moment may leave a kind below zero for that moment.
  for (size_t k = 0; k < kNumMemoryKinds; ++k)
    json[std::string(to_string(kind_at(k)))] = std::max<int64_t>(bytes[kind_at(k)], 0);
  return json;
}

int64_t read_bytes(const JsonReader& object, std::string_view key) {
  return object.integer_or(key, 0, 0, kMostBytes);
}

MemoryBytes read_kinds(const JsonReader& object, std::string_view key) {
  MemoryBytes bytes;
  const auto found = object.find(key);
  for (size_t k = 0; found && k < kNumMemoryKinds; ++k)
    bytes[kind_at(k)] = read_bytes(*found, to_string(kind_at(k)));
  return bytes;
}

ProcessAccount read_process(const JsonReader& object) {
  ProcessAccount process{.peak_bytes = read_bytes(object, "peak_bytes"),
                         .memory = {.tensors = read_kinds(object, "tensors"),
                                    .libraries = read_bytes(object, "libraries"),
                                    .objects = read_bytes(object, "objects"),
                                    .slack = read_bytes(object, "slack"),
                                    .resident = read_bytes(object, "resident")}};
  if (const auto rank = object.find("rank")) process.rank = rank->integer(0, kMostProcesses - 1);
  return process;
}

bool has_kind(const std::vector<WorkerAccount>& workers, MemoryKind kind) {
  return std::any_of(workers.begin(), workers.end(), [kind](const WorkerAccount& worker) {
    return worker.measured[kind] > 0 || worker.predicted[kind] > 0;
  });
}

std::string in_words(MemoryKind kind) {
  if (kind == MemoryKind::OptimizerState) return "state";
  return std::string(to_string(kind));
}

std::string process_name(const ProcessAccount& process) {
  return process.rank ? fmt::format("rank {}", *process.rank) : "process";
}

std::string process_line(const ProcessAccount& process) {
  const ProcessMemory& memory = process.memory;
  return fmt::format(
      "  {:<14} {} at its peak, {} of it by kind: libraries {}, tensors {}, other objects {}, "
      "free in the heap {}\n",
      process_name(process), format_bytes(process.peak_bytes), percent_text(process.named_share()),
      format_bytes(memory.libraries), format_bytes(memory.tensors.sum()),
      format_bytes(memory.objects), format_bytes(memory.slack));
}

Table workers_table(const MemoryAccount& account, size_t most) {
  std::vector<MemoryKind> kinds;
  std::vector<Column> columns = {{"memory of worker", Align::Left}, {"", Align::Left}, {"tensors"}};
  for (size_t k = 0; k < kNumMemoryKinds; ++k) {
    if (!has_kind(account.workers, kind_at(k))) continue;
    kinds.push_back(kind_at(k));
    columns.push_back({in_words(kind_at(k))});
  }
  Table table(std::move(columns));
  const auto add = [&](std::string name, std::string what, const MemoryBytes& bytes) {
    std::vector<std::string> cells = {std::move(name), std::move(what), size_or_dash(bytes.sum())};
    for (const MemoryKind kind : kinds) cells.push_back(size_or_dash(bytes[kind]));
    table.add(std::move(cells));
  };
  for (size_t w = 0; w < std::min(account.workers.size(), most); ++w) {
    const WorkerAccount& worker = account.workers[w];
    add(fmt::to_string(w), "measured", worker.measured);
    if (worker.predicted.sum() > 0) add("", "predicted", worker.predicted);
  }
  return table;
}

std::string difference_line(const MemoryDifference& difference) {
  return fmt::format("largest difference: worker {}, {}: {} measured, {} predicted",
                     difference.worker, in_words(difference.kind),
                     format_bytes(difference.measured), format_bytes(difference.predicted));
}

/// A part of a bar.
struct Part {
  std::string name;
  std::string_view colour;  ///< a variable of page.css
  int64_t bytes = 0;
};

constexpr std::array<std::string_view, kNumMemoryKinds> kColours = {
    "weights", "recompute", "gradients", "state", "stash", "message",
    "free",    "step",      "waiting",   "sync",  "other"};

std::vector<Part> parts_of(const MemoryBytes& bytes) {
  std::vector<Part> parts;
  for (size_t k = 0; k < kNumMemoryKinds; ++k)
    parts.push_back({in_words(kind_at(k)), kColours[k], bytes[kind_at(k)]});
  return parts;
}

std::vector<Part> parts_of(const ProcessAccount& process) {
  const ProcessMemory& memory = process.memory;
  std::vector<Part> parts = parts_of(memory.tensors);
  parts.push_back({"libraries", "hatch", memory.libraries});
  parts.push_back({"other objects", "thumb", memory.objects});
  parts.push_back({"free in the heap", "slack", memory.slack});
  parts.push_back({"without a name", "nameless", process.peak_bytes - memory.named()});
  return parts;
}

std::string bar(const std::string& name, const std::vector<Part>& parts, double widest) {
  std::string text = fmt::format("<div class=\"stack\"><span>{}</span>", name);
  for (const Part& part : parts) {
    if (part.bytes <= 0) continue;
    text += fmt::format("<i style=\"width:{:.2f}%;background:var(--{})\" title=\"{}: {}\"></i>",
                        84 * static_cast<double>(part.bytes) / widest, part.colour, part.name,
                        format_bytes(part.bytes));
  }
  return text + "</div>\n";
}

std::string colours_legend(const std::vector<std::vector<Part>>& bars) {
  std::string text = "<p class=\"legend\">";
  for (size_t p = 0; !bars.empty() && p < bars.front().size(); ++p) {
    const Part& part = bars.front()[p];
    const bool is_shown = std::any_of(bars.begin(), bars.end(), [p](const std::vector<Part>& bar) {
      return p < bar.size() && bar[p].bytes > 0;
    });
    if (is_shown)
      text += fmt::format("<span class=\"key\"><i style=\"background:var(--{})\"></i>{}</span>\n",
                          part.colour, part.name);
  }
  return text + "</p>\n";
}

double widest_of(const std::vector<std::vector<Part>>& bars) {
  int64_t widest = 1;
  for (const std::vector<Part>& parts : bars) {
    int64_t sum = 0;
    for (const Part& part : parts) sum += std::max<int64_t>(part.bytes, 0);
    widest = std::max(widest, sum);
  }
  return static_cast<double>(widest);
}

std::string group_of(const std::vector<std::string>& names,
                     const std::vector<std::vector<Part>>& bars) {
  std::string text;
  const double widest = widest_of(bars);
  for (size_t b = 0; b < bars.size(); ++b) text += bar(names[b], bars[b], widest);
  return text + colours_legend(bars);
}

}  // namespace

double ProcessAccount::named_share() const {
  return peak_bytes > 0 ? static_cast<double>(memory.named()) / static_cast<double>(peak_bytes) : 0;
}

std::optional<MemoryDifference> largest_difference(const MemoryAccount& account) {
  std::optional<MemoryDifference> largest;
  for (size_t w = 0; w < account.workers.size(); ++w) {
    const WorkerAccount& worker = account.workers[w];
    if (worker.predicted.sum() == 0 || worker.measured.sum() == 0) continue;
    for (size_t k = 0; k < kNumMemoryKinds; ++k) {
      const MemoryDifference found{w, kind_at(k), worker.measured[kind_at(k)],
                                   worker.predicted[kind_at(k)]};
      if (!largest || std::abs(found.measured - found.predicted) >
                          std::abs(largest->measured - largest->predicted))
        largest = found;
    }
  }
  return largest;
}

Json memory_json(const MemoryAccount& account) {
  Json processes = Json::array();
  for (const ProcessAccount& process : account.processes) {
    Json entry{{"peak_bytes", process.peak_bytes},
               {"named_share", process.named_share()},
               {"libraries", process.memory.libraries},
               {"objects", process.memory.objects},
               {"slack", process.memory.slack},
               {"resident", process.memory.resident},
               {"tensors", kinds_json(process.memory.tensors)}};
    if (process.rank) entry["rank"] = *process.rank;
    processes.push_back(std::move(entry));
  }
  Json workers = Json::array();
  for (const WorkerAccount& worker : account.workers) {
    Json entry{{"measured", kinds_json(worker.measured)}};
    if (worker.predicted.sum() > 0) entry["predicted"] = kinds_json(worker.predicted);
    workers.push_back(std::move(entry));
  }
  return {{"processes", processes}, {"workers", workers}};
}

MemoryAccount read_memory(const JsonReader& json) {
  MemoryAccount account;
  if (const auto processes = json.find("processes")) {
    for (const JsonReader& process : processes->elements(kMostProcesses))
      account.processes.push_back(read_process(process));
  }
  if (const auto workers = json.find("workers")) {
    for (const JsonReader& worker : workers->elements(kMostWorkers))
      account.workers.push_back({read_kinds(worker, "measured"), read_kinds(worker, "predicted")});
  }
  return account;
}

std::string memory_text(const MemoryAccount& account) {
  if (account.empty()) return {};
  std::string text = "\n";
  const auto more = [](size_t count, std::string_view one, std::string_view several) {
    if (count <= kMostInText) return std::string();
    const size_t left = count - kMostInText;
    return fmt::format("  and {} more {}\n", left, left == 1 ? one : several);
  };
  for (size_t p = 0; p < std::min(account.processes.size(), kMostInText); ++p)
    text += process_line(account.processes[p]);
  text += more(account.processes.size(), "process", "processes");
  if (!account.workers.empty()) text += "\n" + workers_table(account, kMostInText).text(2);
  text += more(account.workers.size(), "worker", "workers");
  if (const auto difference = largest_difference(account))
    text += "  " + difference_line(*difference) + "\n";
  return text;
}

std::string memory_bars(const MemoryAccount& account) {
  if (account.empty()) return {};
  std::string text;
  std::vector<std::string> names;
  std::vector<std::vector<Part>> bars;
  for (size_t w = 0; w < account.workers.size(); ++w) {
    const WorkerAccount& worker = account.workers[w];
    names.push_back(fmt::format("worker {}, measured", w));
    bars.push_back(parts_of(worker.measured));
    if (worker.predicted.sum() == 0) continue;
    names.push_back("predicted");
    bars.push_back(parts_of(worker.predicted));
  }
  text += group_of(names, bars);
  if (!account.workers.empty()) text += workers_table(account, account.workers.size()).html();
  if (const auto difference = largest_difference(account)) {
    const std::string line = difference_line(*difference);
    text += html_paragraph("muted", "L" + line.substr(1) + ".");
  }
  names.clear();
  bars.clear();
  for (const ProcessAccount& process : account.processes) {
    names.push_back(fmt::format("{}, {}", process_name(process), format_bytes(process.peak_bytes)));
    bars.push_back(parts_of(process));
  }
  return text + group_of(names, bars);
}

}  // namespace penstock::report

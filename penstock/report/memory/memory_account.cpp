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
constexpr size_t kWorkersInText = 8;

MemoryKind kind_at(size_t place) { return static_cast<MemoryKind>(place); }

Json kinds_json(const MemoryBytes& bytes) {
  Json json = Json::object();
  for (size_t k = 0; k < kNumMemoryKinds; ++k)
    json[std::string(to_string(kind_at(k)))] = bytes[kind_at(k)];
  return json;
}

MemoryBytes read_kinds(const JsonReader& object, std::string_view key) {
  MemoryBytes bytes;
  const auto found = object.find(key);
  for (size_t k = 0; found && k < kNumMemoryKinds; ++k)
    bytes[kind_at(k)] = found->integer_or(to_string(kind_at(k)), 0);
  return bytes;
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

std::string process_line(const ProcessAccount& process, std::string_view name) {
  const ProcessMemory& memory = process.memory;
  return fmt::format(
      "  {:<14} {} at its peak, {} of it by kind: libraries {}, tensors {}, other objects {}, "
      "free in the heap {}\n",
      name, format_bytes(process.peak_bytes), percent_text(process.named_share()),
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
    "weights", "recompute", "gradients", "state", "stash",    "message",
    "free",    "step",      "waiting",   "sync",  "selection"};

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
  parts.push_back({"free in the heap", "rule", memory.slack});
  parts.push_back({"without a name", "hot", process.peak_bytes - memory.named()});
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
  for (size_t b = 0; b < bars.size(); ++b) text += bar(names[b], bars[b], widest_of(bars));
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
    processes.push_back({{"peak_bytes", process.peak_bytes},
                         {"named_share", process.named_share()},
                         {"libraries", process.memory.libraries},
                         {"objects", process.memory.objects},
                         {"slack", process.memory.slack},
                         {"resident", process.memory.resident},
                         {"tensors", kinds_json(process.memory.tensors)}});
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
    for (const JsonReader& process : processes->elements(kMostWorkers)) {
      account.processes.push_back({.peak_bytes = process.integer_or("peak_bytes", 0, 0),
                                   .memory = {.tensors = read_kinds(process, "tensors"),
                                              .libraries = process.integer_or("libraries", 0),
                                              .objects = process.integer_or("objects", 0),
                                              .slack = process.integer_or("slack", 0),
                                              .resident = process.integer_or("resident", 0)}});
    }
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
  const bool alone = account.processes.size() == 1;
  for (size_t p = 0; p < std::min(account.processes.size(), kWorkersInText); ++p)
    text += process_line(account.processes[p], alone ? "process" : fmt::format("rank {}", p));
  if (!account.workers.empty()) text += "\n" + workers_table(account, kWorkersInText).text(2);
  if (account.workers.size() > kWorkersInText)
    text += fmt::format("  and {} more\n", account.workers.size() - kWorkersInText);
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
  for (size_t p = 0; p < account.processes.size(); ++p) {
    names.push_back(
        fmt::format("process {}, {}", p, format_bytes(account.processes[p].peak_bytes)));
    bars.push_back(parts_of(account.processes[p]));
  }
  return text + group_of(names, bars);
}

}  // namespace penstock::report

// The lists that Slurm writes into a step's environment in a short form.
//
//   first_host("rack[1-2]node[07-09,12],login") == "rack1node07";
//   index_of_host("node[07-09,12]", "node12") == 3;
//   tasks_on_node("2(x3),1", 3) == 1;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::launch {

/// The first host of SLURM_STEP_NODELIST: each bracket is replaced by its first number. Nothing if
/// the list is malformed or empty.
std::optional<std::string> first_host(std::string_view list);

/// The place of `host` in such a list, from 0. Nothing if the list is malformed or has no such
/// host.
std::optional<int64_t> index_of_host(std::string_view list, std::string_view host);

/// How many tasks node `node` (from 0) has by SLURM_STEP_TASKS_PER_NODE: numbers, each with
/// "(xN)" if the next N nodes have as many. Nothing if the list is malformed or has no such node.
std::optional<int64_t> tasks_on_node(std::string_view list, int64_t node);

}  // namespace penstock::launch

// Signals that come before a command can end in order.
#pragma once

namespace penstock::tool {

/// SIGINT, SIGTERM and SIGHUP wait until catch_end_signals() (command.h), also over exec: for
/// commands that end in order, so that a signal that comes while they load does not meet the
/// system's default.
void hold_end_signals();

}  // namespace penstock::tool

// A profile as a JSON value, for documents that have more in them. Internal to profile.
#pragma once

#include "penstock/profile/profile.h"
#include "penstock/util/files/json.h"

namespace penstock::profile::detail {

/// Without "format" and "version". Throws as validate().
Json document_of(const Profile& profile);
/// Throws ParseError; its format has been checked.
Profile profile_in(const JsonReader& root, std::string_view place);

}  // namespace penstock::profile::detail

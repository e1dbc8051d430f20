// The folder in which devices keep what they compiled.
#pragma once

#include <string>

namespace pjrt_metal {

// PJRT_METAL_CACHE_DIR, or the user's cache folder; empty if there is none.
std::string CacheFolder();

// Creates the folder, and what it is in, for this user alone, unless it is there. Returns why it cannot be trusted or
// used; empty: it can.
std::string PrepareFolder(const std::string& folder);

// A path in `folder` that no other process or thread has been given: what is written there is complete before it is
// renamed to where others look.
std::string TemporaryPath(const std::string& folder);

}  // namespace pjrt_metal

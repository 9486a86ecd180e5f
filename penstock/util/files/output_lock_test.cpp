#include "penstock/util/files/output_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "penstock/util/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

TEST(OutputLock, ASecondRunForTheSameFileIsRefusedAndTold) {
  const fs::path folder = fs::temp_directory_path() / ("output_lock_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const fs::path file = folder / "history.json";
  {
    const OutputLock first(file);
    const OutputLock other(folder / "trace.json");
    try {
      const OutputLock second(folder / "." / "history.json");
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("history.json' is what another run is to write "
                                                   "(process " +
                                                   std::to_string(::getpid())));
      EXPECT_THAT(error.what(), testing::HasSubstr("give each RANK, WORLD_SIZE"));
    }
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_TRUE(fs::is_empty(folder));
  // The first has ended; what one that was killed leaves is no lock.
  std::ofstream(folder / ".history.json.lock") << "process 1 on gone";
  EXPECT_NO_THROW(OutputLock{file});
  fs::remove_all(folder);
}

TEST(OutputLock, NobodyOwnsADeviceOrAFolderThatIsMissing) {
  const OutputLock first("/dev/null");
  EXPECT_NO_THROW(OutputLock{"/dev/null"});
  EXPECT_NO_THROW(OutputLock{"/no/such/folder/history.json"});
}

}  // namespace
}  // namespace penstock

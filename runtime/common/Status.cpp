#include "runtime/common/Status.h"

namespace heddle::runtime {

static std::string &slot() {
  thread_local std::string message;
  return message;
}

heddle_rt_status failWith(heddle_rt_status status, std::string message) {
  slot() = std::move(message);
  return status;
}

const std::string &lastError() { return slot(); }

} // namespace heddle::runtime

const char *heddle_rt_last_error(void) {
  return heddle::runtime::lastError().c_str();
}

heddle_rt_status heddle_rt_launch_failed(const char *name, const char *why) {
  return heddle::runtime::fail(
      HEDDLE_RT_DEVICE_ERROR, "{}: {}",
      heddle::runtime::orUnnamed(name, "unnamed kernel"),
      heddle::runtime::orUnnamed(why, "launch failed"));
}

#include "common/transport/verbs/slow_connect.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace skua {

void SlowConnect::Parts::end() {
  connection.end_queue_pair();
  completions.reset();
  completion_channel.reset();
  memory_region.reset();
  connection.reset();
  events.reset();
  memory.reset();
}

SlowConnect::SlowConnect(const rdma_conn_param& parameters, Descriptor wake)
    : parameters_(parameters),
      private_data_(static_cast<const char*>(parameters.private_data), parameters.private_data_len),
      wake_(std::move(wake)) {
  parameters_.private_data = private_data_.data();
}

Result<std::shared_ptr<SlowConnect>> SlowConnect::start(rdma_cm_id* id, const rdma_conn_param& parameters, int wake) {
  Descriptor own(::fcntl(wake, F_DUPFD_CLOEXEC, 0));
  if (!own) return fail(StatusCode::kResourceExhausted, "fcntl: " + errno_text(errno));
  std::shared_ptr<SlowConnect> call(new SlowConnect(parameters, std::move(own)));
  try {
    std::thread([call, id] { call->run(id); }).detach();
  } catch (const std::system_error& error) {
    return fail(StatusCode::kResourceExhausted, std::string("no thread to connect on: ") + error.what());
  }
  return call;
}

void SlowConnect::run(rdma_cm_id* id) {
  const int error = ::rdma_connect(id, &parameters_) == 0 ? 0 : errno;
  std::optional<Parts> left;
  {
    const std::lock_guard lock(mutex_);
    result_ = error;
    left = std::exchange(left_, std::nullopt);
  }
  if (left) left->end();
  (void)::eventfd_write(wake_.get(), 1);
}

std::optional<int> SlowConnect::result() {
  const std::lock_guard lock(mutex_);
  return result_;
}

bool SlowConnect::leave_behind(Parts& parts) {
  const std::lock_guard lock(mutex_);
  if (result_) return false;
  left_.emplace(std::move(parts));
  return true;
}

}  // namespace skua

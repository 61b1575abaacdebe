// What a user's program looks like. Without a server it ends with 3, and says that nobody answered.
#include <cstdio>
#include <string>

#include "client/client.h"

namespace {

constexpr int kNobodyAnswered = 3;

int report(const skua::Status& status) {
  std::printf("%s\n", status.to_string().c_str());
  return status.code() == skua::StatusCode::kUnavailable ? kNobodyAnswered : 1;
}

}  // namespace

int main(int argc, char** argv) {
  skua::ClientOptions options;
  options.seeds = {argc > 1 ? argv[1] : "127.0.0.1:7400"};
  options.connect_timeout = 2 * skua::kSecond;
  auto client = skua::Client::connect(options);
  if (!client) return report(client.error());
  auto session = (*client)->open_session();
  if (!session) return report(session.error());
  auto stored = (*session)->put("name", "skua");
  if (!stored) return report(stored.error());
  auto value = (*session)->get("name");
  if (!value) return report(value.error());
  if (!value->has_value()) return 1;
  std::printf("name = %s\n", std::string((*value)->bytes).c_str());
  return 0;
}

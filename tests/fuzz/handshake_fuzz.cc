// Promises of the first messages of a data connection (common/transport/handshake.h), for any bytes:
//   a hello gets in only with this magic and version, and a session's own secret, all 16 bytes of it;
//   a welcome that is believed claims no more bytes than the limit, and a refusal's code is a known one;
//   hello and refusal come back from their own encoding unchanged.
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/transport/handshake.h"
#include "proto/version.h"
#include "tests/fuzz/input.h"

namespace skua::fuzz {
namespace {

const std::string kSecret = "0123456789abcdef";
constexpr SessionId kSession{7};

void check_server(std::string_view bytes, std::string_view other_secret) {
  TicketTable tickets;
  tickets.admit({kSession, kSecret, false, {}});
  const uint64_t serial = tickets.admit({SessionId{8}, std::string(other_secret), true, {}});
  DataHello hello{};
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof hello));
  const bool ours = hello.magic == proto::kDataMagic && hello.version == proto::kDataVersion;
  const auto prefix = check_hello_prefix(hello);
  SKUA_CHECK(prefix.has_value() == ours && (ours || prefix.error().code() == StatusCode::kIncompatible), "prefix");

  const std::string_view shown(reinterpret_cast<const char*>(hello.secret), kSecretBytes);
  const bool first = hello.session == 7 && shown == kSecret;
  const bool second = hello.session == 8 && shown == other_secret;
  const auto admitted = tickets.check(hello);
  SKUA_CHECK(admitted.has_value() == (first || second), "who knows the secret is let in, and nobody else");
  SKUA_CHECK(!second || (admitted->ticket.read_only && admitted->serial == serial), "with its own ticket");
  SKUA_CHECK(tickets.remove(kSession) > serial && (!first || !tickets.check(hello)), "a removed ticket is no ticket");
}

void check_client(std::string_view bytes) {
  DataWelcome welcome{};
  std::memcpy(&welcome, bytes.data(), std::min(bytes.size(), sizeof welcome));
  const auto believed = check_welcome(welcome);
  if (!believed) return;
  SKUA_CHECK(welcome.magic == proto::kDataMagic && welcome.reason_bytes <= kMaxReasonBytes, "claimed bytes");
  const Status status = status_of_refusal(welcome, bytes.substr(std::min(bytes.size(), sizeof welcome)));
  SKUA_CHECK(status.code() >= StatusCode::kInvalidArgument && status.code() <= StatusCode::kInternal, "known code");
}

void check_encoding(const ConnectTarget& target, uint8_t code, std::string_view reason) {
  const auto hello = make_hello(target);
  SKUA_CHECK(hello.has_value() == (target.secret.size() == kSecretBytes), "secret");
  if (hello) {
    SKUA_CHECK(check_hello_prefix(*hello).has_value() && (hello->flags == kDataReadOnly) == target.read_only, "hello");
    TicketTable tickets;
    tickets.admit({target.session, target.secret, target.read_only, {}});
    SKUA_CHECK(tickets.check(*hello).has_value(), "is let in with its ticket");
  }
  const auto kind = static_cast<StatusCode>(1 + code % static_cast<uint8_t>(StatusCode::kInternal));
  const std::string refusal = make_refusal(Status(kind, std::string(reason)));
  DataWelcome welcome{};
  std::memcpy(&welcome, refusal.data(), sizeof welcome);
  SKUA_CHECK(check_welcome(welcome).has_value() && refusal.size() == sizeof welcome + welcome.reason_bytes, "refusal");
  const Status again = status_of_refusal(welcome, std::string_view(refusal).substr(sizeof welcome));
  SKUA_CHECK(again.code() == kind && again.message() == reason.substr(0, kMaxReasonBytes), "comes back");
}

}  // namespace
}  // namespace skua::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skua;
  fuzz::Input input(data, size);
  const uint8_t code = input.byte();
  const std::string_view secret = input.bytes(input.byte() % 32);
  const std::string_view message = input.rest();
  fuzz::check_server(message, secret);
  fuzz::check_client(message);
  ConnectTarget target;
  target.session = SessionId{code};
  target.secret = secret;
  target.read_only = code % 2 != 0;
  fuzz::check_encoding(target, code, message);
  return 0;
}

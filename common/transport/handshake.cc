#include "common/transport/handshake.h"

#include <algorithm>
#include <cstring>

#include "common/base/units.h"
#include "proto/version.h"

namespace skua {

Result<DataHello> make_hello(const ConnectTarget& target) {
  if (target.secret.size() != kSecretBytes) {
    return fail(StatusCode::kInvalidArgument, "the secret of a data connection has " +
                                                  std::to_string(target.secret.size()) + " bytes; 16 are needed");
  }
  DataHello hello{};
  hello.magic = proto::kDataMagic;
  hello.version = proto::kDataVersion;
  hello.session = static_cast<uint64_t>(target.session);
  std::memcpy(hello.secret, target.secret.data(), kSecretBytes);
  hello.flags = target.read_only ? kDataReadOnly : 0;
  return hello;
}

Result<void> check_hello_prefix(const DataHello& prefix) {
  if (prefix.magic != proto::kDataMagic) {
    return fail(StatusCode::kIncompatible, "this is a data port of Skua; what came begins with " +
                                               hex_text(prefix.magic) + " and not with its magic, " +
                                               hex_text(proto::kDataMagic));
  }
  if (prefix.version != proto::kDataVersion) {
    return fail(StatusCode::kIncompatible, "client speaks data version " + std::to_string(prefix.version) +
                                               ", server " + std::to_string(proto::kDataVersion) +
                                               "; use the same release on both sides");
  }
  return {};
}

DataWelcome make_welcome() {
  DataWelcome welcome{};
  welcome.magic = proto::kDataMagic;
  welcome.version = proto::kDataVersion;
  return welcome;
}

std::string make_refusal(const Status& status) {
  const std::string_view reason = std::string_view(status.message()).substr(0, kMaxReasonBytes);
  DataWelcome welcome = make_welcome();
  welcome.status = static_cast<uint32_t>(status.code());
  welcome.reason_bytes = static_cast<uint32_t>(reason.size());
  std::string message(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
  message += reason;
  return message;
}

Result<void> check_welcome(const DataWelcome& welcome) {
  if (welcome.magic != proto::kDataMagic) {
    return fail(StatusCode::kIncompatible, "the peer is no data port of Skua: its answer has another magic");
  }
  if (welcome.reason_bytes > kMaxReasonBytes) {
    return fail(StatusCode::kCorruption, "the peer's answer claims a reason of " +
                                             std::to_string(welcome.reason_bytes) + " bytes");
  }
  if (welcome.status == 0 && welcome.version != proto::kDataVersion) {
    return fail(StatusCode::kIncompatible, "server speaks data version " + std::to_string(welcome.version) +
                                               ", client " + std::to_string(proto::kDataVersion));
  }
  return {};
}

Status status_of_refusal(const DataWelcome& welcome, std::string_view reason) {
  const bool known = welcome.status >= 1 && welcome.status <= static_cast<uint32_t>(StatusCode::kInternal);
  return Status(known ? static_cast<StatusCode>(welcome.status) : StatusCode::kInternal, std::string(reason));
}

uint64_t TicketTable::admit(SessionTicket ticket) {
  const uint64_t serial = next_serial_++;
  const auto session = static_cast<uint64_t>(ticket.session);
  tickets_.insert_or_assign(session, Admitted{std::move(ticket), serial});
  return serial;
}

uint64_t TicketTable::remove(SessionId session) {
  tickets_.erase(static_cast<uint64_t>(session));
  return next_serial_;
}

Result<TicketTable::Admitted> TicketTable::check(const DataHello& hello) const {
  const auto found = tickets_.find(hello.session);
  bool equal = found != tickets_.end() && found->second.ticket.secret.size() == kSecretBytes;
  if (equal) {
    unsigned difference = 0;  // every byte is looked at, so that timing tells nothing
    for (size_t i = 0; i < kSecretBytes; ++i) {
      difference |= hello.secret[i] ^ static_cast<unsigned char>(found->second.ticket.secret[i]);
    }
    equal = difference == 0;
  }
  if (!equal) {
    return fail(StatusCode::kUnauthenticated,
                "session " + std::to_string(hello.session) + " is not admitted here, or its secret is another; "
                "open or resume the session first");
  }
  return found->second;
}

}  // namespace skua

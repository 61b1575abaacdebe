#include "common/control/hello.h"

#include <array>
#include <cstdio>

#include "common/base/units.h"
#include "proto/version.h"

namespace skua {
namespace {

std::string hex(uint64_t value) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

Result<void> check_versions(uint32_t control_version, uint32_t layout_version) {
  if (control_version != proto::kControlVersion) {
    return fail(StatusCode::kIncompatible,
                "the peer speaks control version " + std::to_string(control_version) + ", this side " +
                    std::to_string(proto::kControlVersion) + "; run the same release of skua on both");
  }
  if (layout_version != proto::kLayoutVersion) {
    return fail(StatusCode::kIncompatible,
                "the peer knows memory layout " + std::to_string(layout_version) + ", this side " +
                    std::to_string(proto::kLayoutVersion) + "; run the same release of skua on both");
  }
  return {};
}

Result<void> check_cluster(uint64_t theirs, uint64_t own) {
  if (theirs == 0 || own == 0 || theirs == own) return {};
  return fail(StatusCode::kConfiguration, "this address belongs to cluster " + hex(own) + ", not to " + hex(theirs));
}

}  // namespace

std::string software_text() { return "skua 0.1.0"; }

control::Hello make_hello(const HelloTerms& terms) {
  control::Hello hello;
  hello.set_magic(proto::kControlMagic);
  hello.set_control_version(proto::kControlVersion);
  hello.set_layout_version(proto::kLayoutVersion);
  hello.set_token(terms.token);
  hello.set_software(software_text());
  hello.set_cluster_id(terms.cluster_id);
  return hello;
}

Result<void> check_hello(const control::Hello& hello, const HelloTerms& own) {
  if (hello.magic() != proto::kControlMagic) {
    return fail(StatusCode::kIncompatible, "hello with magic " + hex_text(hello.magic()) + " instead of " +
                                               hex_text(proto::kControlMagic));
  }
  SKUA_RETURN_IF_ERROR(check_versions(hello.control_version(), hello.layout_version()));
  if (!own.token.empty() && !equal_in_constant_time(hello.token(), own.token)) {
    return fail(StatusCode::kUnauthenticated,
                hello.token().empty() ? "this cluster asks for an access token and none was shown"
                                      : "the access token is not this cluster's");
  }
  return check_cluster(hello.cluster_id(), own.cluster_id);
}

Result<void> check_hello_reply(const control::HelloReply& reply, uint64_t wanted_cluster_id) {
  SKUA_RETURN_IF_ERROR(check_versions(reply.control_version(), reply.layout_version()));
  return check_cluster(wanted_cluster_id, reply.cluster_id());
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // tidy: allow(banned): volatile keeps the compiler from leaving the loop at the first difference
  volatile int difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

void set_failure(const Status& status, control::Failure& failure) {
  failure.set_code(static_cast<uint32_t>(status.code()));
  failure.set_message(status.message());
}

Status status_of(const control::Failure& failure) {
  constexpr auto kLast = static_cast<uint32_t>(StatusCode::kInternal);
  if (failure.code() == 0 || failure.code() > kLast) {
    return Status(StatusCode::kInternal, "failure of unknown code " + std::to_string(failure.code()) + ": " +
                                             failure.message());
  }
  return Status(static_cast<StatusCode>(failure.code()), failure.message());
}

}  // namespace skua

#pragma once
// The first message of every control connection, both ways: are we able to talk, and may you.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "proto/control.pb.h"

namespace skua {

struct HelloTerms {
  std::string token;        // of the cluster; empty: it has none
  uint64_t cluster_id = 0;  // 0: not known yet, anything fits
};

std::string software_text();  // "skua 0.1.0"

control::Hello make_hello(const HelloTerms& terms);
// kIncompatible names both sides' numbers; kUnauthenticated for a token that is missing or wrong (compared in constant
// time); kConfiguration for another cluster. Versions are judged before the token, so that an old client learns why.
Result<void> check_hello(const control::Hello& hello, const HelloTerms& own);
// What a client makes of the answer. cluster_id 0 fits any.
Result<void> check_hello_reply(const control::HelloReply& reply, uint64_t wanted_cluster_id);

// Time depends on the sizes alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Any request may be answered by a Failure; these two are inverse.
void set_failure(const Status& status, control::Failure& failure);
Status status_of(const control::Failure& failure);

}  // namespace skua

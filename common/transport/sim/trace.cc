#include "common/transport/sim/trace.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace skua::sim {
namespace {

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (std::rotl(hash, 29) ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t hash_bytes(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  uint64_t hash = bytes;
  for (size_t left = bytes; left > 0;) {
    uint64_t word = 0;
    const size_t step = std::min(left, sizeof word);
    std::memcpy(&word, at, step);
    hash = mix(hash, word);
    at += step;
    left -= step;
  }
  return hash;
}

void Trace::add(std::string_view what, TraceEvent event, uint64_t content) {
  std::memset(event.what, 0, sizeof event.what);
  std::memcpy(event.what, what.data(), std::min(what.size(), TraceEvent::kNameBytes));
  hash_ = mix(hash_, hash_bytes(event.what, sizeof event.what));
  for (uint64_t word : {static_cast<uint64_t>(event.at), uint64_t{event.process}, uint64_t{event.connection},
                        event.sequence, event.offset, event.bytes, event.before, event.after, content}) {
    hash_ = mix(hash_, word);
  }
  ring_[count_ % ring_.size()] = event;
  ++count_;
}

std::vector<TraceEvent> Trace::last(size_t limit) const {
  const uint64_t kept = std::min<uint64_t>({count_, ring_.size(), limit});
  std::vector<TraceEvent> events;
  for (uint64_t i = count_ - kept; i < count_; ++i) events.push_back(ring_[i % ring_.size()]);
  return events;
}

std::string Trace::to_string(size_t limit) const {
  std::string text;
  for (const TraceEvent& event : last(limit)) {
    char line[256];
    std::snprintf(line, sizeof line,
                  "%14lld ns  process %u  connection %-4u #%-6llu %-15s offset %#llx bytes %llu: %#llx -> %#llx\n",
                  static_cast<long long>(event.at), event.process, event.connection,
                  static_cast<unsigned long long>(event.sequence), event.what,
                  static_cast<unsigned long long>(event.offset), static_cast<unsigned long long>(event.bytes),
                  static_cast<unsigned long long>(event.before), static_cast<unsigned long long>(event.after));
    text += line;
  }
  return text;
}

}  // namespace skua::sim

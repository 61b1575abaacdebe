#pragma once
// Hooks by which the simulator looks into product code. They exist only where SKUA_SIMULATION is defined, which is
// never so in the product; elsewhere SKUA_PROBE is nothing and SKUA_PLANTED_BUG is false.
//
//   SKUA_PROBE("insert.rival-killed");          counts: a rare branch was taken
//   if (!SKUA_PLANTED_BUG("no-fence")) ...      true while the simulator has switched that bug on
//   constexpr size_t kSlice = SKUA_KNOB(65536, 64);   the second one in simulations, so that more happens in less time
//
// Names are unique for bugs; several probes may share one. A site is known before main, hit or not.
#ifndef SKUA_SIMULATION

#define SKUA_PROBE(name) static_cast<void>(0)
#define SKUA_PLANTED_BUG(name) false
#define SKUA_KNOB(real, simulated) (real)

#else

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace skua::hooks {

template <size_t N>
struct Name {
  char text[N]{};
  constexpr Name(const char (&literal)[N]) {
    for (size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
};

// By name. Threads: read after main has begun; values are atomic.
inline std::map<std::string_view, std::atomic<uint64_t>*>& probes() {
  static std::map<std::string_view, std::atomic<uint64_t>*> all;
  return all;
}
inline std::map<std::string_view, std::atomic<bool>*>& planted_bugs() {
  static std::map<std::string_view, std::atomic<bool>*> all;
  return all;
}

template <Name kName>
struct Probe {
  static inline std::atomic<uint64_t> hits{0};
  static inline const bool known = probes().emplace(kName.text, &hits).second;
  static void hit() {
    static_cast<void>(&known);
    hits.fetch_add(1, std::memory_order_relaxed);
  }
};
template <Name kName>
struct PlantedBug {
  static inline std::atomic<bool> active{false};
  static inline const bool known = planted_bugs().emplace(kName.text, &active).second;
  static bool on() {
    static_cast<void>(&known);
    return active.load(std::memory_order_relaxed);
  }
};

}  // namespace skua::hooks

#define SKUA_PROBE(name) ::skua::hooks::Probe<name>::hit()
#define SKUA_PLANTED_BUG(name) ::skua::hooks::PlantedBug<name>::on()
#define SKUA_KNOB(real, simulated) (simulated)

#endif

#pragma once
// Random is xoshiro256** (Blackman and Vigna, 2018): seeded, the same on every platform, not for secrets.
// Entropy hands out seeds and secrets; the real one reads getrandom(2), the simulator's is seeded.
#include <array>
#include <bit>
#include <cstdint>

namespace skua {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = split_mix(seed);
  }
  uint64_t next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  // Uniform in [0, bound). Requires: bound > 0. (Lemire's multiply, bias below bound / 2^64.)
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((Wide{next()} * bound) >> 64);
  }
  // Uniform in [0, 1), 53 bits.
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  __extension__ using Wide = unsigned __int128;
  static uint64_t split_mix(uint64_t& state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::array<uint64_t, 4> state_{};
};

class Entropy {
 public:
  virtual ~Entropy() = default;
  virtual uint64_t next() = 0;  // 64 unpredictable bits. Threads: any.
};

Entropy& system_entropy();

}  // namespace skua

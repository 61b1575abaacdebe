// A server process with nothing but an arena and a target: `skua_conformance_target shm|tcp SESSION`. It admits
// SESSION with one region of 1 MiB under key 1, prints its endpoint, and ends when standard input does.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/conformance/harness.h"

int main(int count, char** arguments) {
  using namespace skua;
  using namespace skua::conformance;
  if (count != 3) return 64;
  const Arena arena(1 * kMiB);
  auto target = make_fixture(arguments[1])->make_target({}, arena.info());
  if (!target) {
    std::cerr << target.error().to_string() << '\n';
    return 69;
  }
  const uint64_t session = std::strtoull(arguments[2], nullptr, 10);
  (*target)->admit(make_session(session, arena, {{RegionKey{1}, 0, 1 * kMiB}}).ticket);
  std::cout << (*target)->endpoint() << std::endl;
  while (std::getchar() != EOF) {
  }
  return 0;
}

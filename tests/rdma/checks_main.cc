// skua_rdma_checks: checks of sessions over verbs that need someone to break something, or a process of their own.
//   skua_rdma_checks fault HOST:PORT FAULT_FILE returns|gone
//   skua_rdma_checks waits HOST:PORT
//   skua_rdma_checks fork HOST:PORT
// Exit code 0: all was as it should be.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/rdma/checks.h"

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);  // soft-iWARP raises it in who posts to a connection that has just ended
  const std::vector<std::string> words(arguments + 1, arguments + count);
  bool passed = false;
  if (words.size() == 4 && words[0] == "fault") {
    passed = skua::rdma_checks::check_fault({words[1], words[2], words[3] == "returns"});
  } else if (words.size() == 2 && words[0] == "waits") {
    passed = skua::rdma_checks::check_waits(words[1]);
  } else if (words.size() == 2 && words[0] == "fork") {
    passed = skua::rdma_checks::check_fork(words[1]);
  } else {
    return 64;
  }
  std::fflush(stdout);
  std::_Exit(passed ? 0 : 1);  // threads of a load whose server is gone may still be waiting
}

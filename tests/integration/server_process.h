#pragma once
// Real skua-server processes for tests: started, heard, signalled, and never left behind.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/net_address.h"

namespace skua::testing {

// A directory of its own in memory, gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One process. The destructor kills it and waits for it.
class ServerProcess {
 public:
  // Adds --data-dir DIR/NAME, --ready-file and, unless given, --listen 127.0.0.1:0, to `flags`.
  ServerProcess(const TemporaryDirectory& directory, const std::string& name, std::vector<std::string> flags);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits for the line "ready" on its standard output; false when it ended before or 30 s passed.
  bool wait_ready();
  // Waits up to 30 s for `text` on its standard error.
  bool wait_error_text(const std::string& text);
  void signal(int number) const;
  // The exit code, 128 + signal when it was killed, nothing when it runs on after 30 s.
  std::optional<int> wait_exit();

  std::string ready_json() const;      // of --ready-file
  NetAddress control_address() const;  // from there
  std::string data_address(const std::string& transport) const;
  const std::string& output() const { return output_; }
  const std::string& errors() const { return errors_; }  // as far as read; all of it after wait_exit
  pid_t pid() const { return pid_; }

 private:
  // Reads what comes until `done` says so; false at the end of both streams or after 30 s.
  template <class Done>
  bool read_until(Done done);

  std::string ready_file_;
  pid_t pid_ = -1;
  int output_pipe_ = -1;
  int error_pipe_ = -1;
  std::string output_;
  std::string errors_;
};

}  // namespace skua::testing

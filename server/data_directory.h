#pragma once
// DataDirectory is what one server keeps on disk: who it is. The coordinator's map lies in a folder beside it.
//
// Owns:    a lock on the directory as long as it lives; one server a directory.
// Errors:  kConfiguration (cannot be created or written, belongs to something else), kUnavailable (another server uses
//          it), kCorruption; all name the path and the remedy.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace skua {

struct ServerIdentity {
  std::string name;
  uint64_t cluster_id = 0;  // 0: has a name and has not joined yet
  bool coordinator = false;
};

class DataDirectory {
 public:
  static Result<std::unique_ptr<DataDirectory>> open(const std::string& path);
  ~DataDirectory();
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

  // Of the server that used it before; nothing in a fresh one.
  const std::optional<ServerIdentity>& identity() const { return identity_; }
  // On disk when it returns; whole or not at all.
  Result<void> remember(const ServerIdentity& identity);
  std::string coordinator_path() const { return path_ + "/coordinator"; }

 private:
  DataDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  Result<void> read_identity();

  const std::string path_;
  const int lock_;
  std::optional<ServerIdentity> identity_;
};

}  // namespace skua

#include "server/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace skua {
namespace {

constexpr std::string_view kFirstLine = "skua server 1";

Error refuse(StatusCode code, const std::string& path, const std::string& why) {
  return fail(code, "data directory " + path + ": " + why);
}

std::string errno_text(int error) {
  return std::string(std::strerror(error)) + " (errno " + std::to_string(error) + ")";
}

Result<void> write_synced(const std::string& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return refuse(StatusCode::kConfiguration, path, "cannot be written: " + errno_text(errno));
  const ssize_t written = ::write(file, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  if (!whole) return refuse(StatusCode::kResourceExhausted, path, "cannot be written: " + errno_text(error));
  return {};
}

}  // namespace

Result<std::unique_ptr<DataDirectory>> DataDirectory::open(const std::string& path) {
  constexpr std::string_view kRemedy = "; choose another with --data-dir";
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return refuse(StatusCode::kConfiguration, path, "cannot be created: " + error.message() + std::string(kRemedy));
  }
  const int lock = ::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    return refuse(StatusCode::kConfiguration, path, "cannot be written: " + errno_text(errno) + std::string(kRemedy));
  }
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return refuse(StatusCode::kUnavailable, path, "another skua-server uses it; stop that one" + std::string(kRemedy));
  }
  std::unique_ptr<DataDirectory> directory(new DataDirectory(path, lock));
  SKUA_RETURN_IF_ERROR(directory->read_identity());
  return directory;
}

DataDirectory::~DataDirectory() { ::close(lock_); }

Result<void> DataDirectory::read_identity() {
  const std::string path = path_ + "/identity";
  std::ifstream file(path);
  if (!file) return {};
  std::string line;
  std::getline(file, line);
  if (line != kFirstLine) {
    return refuse(StatusCode::kConfiguration, path, "begins with '" + line.substr(0, 40) + "' and not with '" +
                                                        std::string(kFirstLine) + "'; use another --data-dir");
  }
  ServerIdentity identity;
  std::string role;
  while (std::getline(file, line)) {
    const size_t equals = line.find('=');
    const std::string key = line.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : line.substr(equals + 1);
    if (key == "name") identity.name = value;
    if (key == "role") role = value;
    if (key == "cluster") {
      std::istringstream number(value);
      number >> std::hex >> identity.cluster_id;
    }
  }
  const bool known_role = role == "coordinator" || role == "member";
  if (identity.name.empty() || !known_role || (identity.cluster_id == 0 && role == "coordinator")) {
    return refuse(StatusCode::kCorruption, path, "lacks name, cluster or role; use another --data-dir");
  }
  identity.coordinator = role == "coordinator";
  identity_ = std::move(identity);
  return {};
}

Result<void> DataDirectory::remember(const ServerIdentity& identity) {
  std::ostringstream text;
  text << kFirstLine << "\nname=" << identity.name << "\ncluster=" << std::hex << identity.cluster_id
       << "\nrole=" << (identity.coordinator ? "coordinator" : "member") << "\n";
  const std::string path = path_ + "/identity";
  SKUA_RETURN_IF_ERROR(write_synced(path + ".new", text.str()));
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    return refuse(StatusCode::kConfiguration, path, "cannot be replaced: " + errno_text(errno));
  }
  identity_ = identity;
  return {};
}

}  // namespace skua

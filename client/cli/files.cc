#include "client/cli/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace skua::cli {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;

std::string reason() { return std::generic_category().message(errno); }

Error cannot_read(const std::string& path) {
  return fail(StatusCode::kConfiguration,
              "cannot read " + (path == "-" ? "standard input" : "'" + path + "'") + ": " + reason());
}

}  // namespace

Result<FileHandle> open_input(const std::string& path) {
  if (path == "-") return FileHandle(stdin);
  FileHandle file(std::fopen(path.c_str(), "rb"));
  if (!file) return cannot_read(path);
  struct stat info {};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return cannot_read(path);
  }
  return file;
}

Result<std::string> read_all(const std::string& path, size_t limit) {
  auto file = open_input(path);
  if (!file) return Error(file.error());
  std::string bytes;
  while (bytes.size() <= limit) {
    const size_t before = bytes.size();
    bytes.resize(before + kReadBytes);
    const size_t got = std::fread(bytes.data() + before, 1, kReadBytes, file->get());
    bytes.resize(before + got);
    if (got == 0) break;
  }
  if (std::ferror(file->get()) != 0) return cannot_read(path);
  if (bytes.size() > limit) {
    return fail(StatusCode::kInvalidArgument, "'" + path + "' has more than the " + std::to_string(limit) +
                                                  " bytes that a value can have; split it over several keys");
  }
  return bytes;
}

LineReader::LineReader(FileHandle file, size_t max_line_bytes)
    : file_(std::move(file)), max_line_bytes_(max_line_bytes) {}

Result<std::optional<std::string_view>> LineReader::next() {
  size_t searched = start_;
  for (;;) {
    const size_t newline = buffer_.find('\n', searched);
    const bool whole = newline != std::string::npos;
    if (whole || (at_end_ && start_ < buffer_.size())) {
      const size_t end = whole ? newline : buffer_.size();
      const std::string_view line = std::string_view(buffer_).substr(start_, end - start_);
      const size_t next_start = whole ? newline + 1 : end;
      bytes_ += next_start - start_;
      start_ = next_start;
      ++line_;
      return std::optional(line);
    }
    if (at_end_) return std::optional<std::string_view>();
    if (buffer_.size() - start_ > max_line_bytes_) {
      ++line_;
      return fail(StatusCode::kInvalidArgument,
                  "longer than the " + std::to_string(max_line_bytes_) + " bytes that a line can have");
    }
    buffer_.erase(0, std::exchange(start_, 0));
    searched = buffer_.size();
    buffer_.resize(searched + kReadBytes);
    const size_t got = std::fread(buffer_.data() + searched, 1, kReadBytes, file_.get());
    buffer_.resize(searched + got);
    if (std::ferror(file_.get()) != 0) return fail(StatusCode::kConfiguration, "reading failed: " + reason());
    at_end_ = got == 0;
  }
}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  if (path == "-") return std::unique_ptr<OutputFile>(new OutputFile("standard output", "", stdout));
  struct stat info {};
  const bool in_place = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  const std::string temporary = in_place ? "" : path + ".partial." + std::to_string(getpid());
  std::FILE* file = std::fopen(in_place ? path.c_str() : temporary.c_str(), "wb");
  if (file == nullptr) return fail(StatusCode::kConfiguration, "cannot write '" + path + "': " + reason());
  return std::unique_ptr<OutputFile>(new OutputFile(path, temporary, file));
}

OutputFile::OutputFile(std::string path, std::string temporary, std::FILE* file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Result<void> OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failed("write");
  return {};
}

Result<void> OutputFile::commit() {
  if (std::fflush(file_) != 0) return failed("write");
  if (temporary_.empty()) return {};
  if (fsync(fileno(file_)) != 0) return failed("synchronise");
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return failed("close");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename");
  temporary_.clear();
  return {};
}

Error OutputFile::failed(std::string_view what) const {
  return fail(StatusCode::kConfiguration, "cannot " + std::string(what) + " '" + path_ + "': " + reason());
}

}  // namespace skua::cli

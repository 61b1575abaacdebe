#pragma once
// Files as commands use them: "-" is standard input or output, errors say what the system said.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace skua::cli {

struct FileCloser {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using FileHandle = std::unique_ptr<std::FILE, FileCloser>;

// Error: kConfiguration, for a file that cannot be read.
Result<FileHandle> open_input(const std::string& path);
// At most `limit` bytes. Error: kConfiguration; kInvalidArgument when there are more.
Result<std::string> read_all(const std::string& path, size_t limit);

// LineReader hands out a file's lines without their newlines. The last one may lack its newline.
// Owns the file. Threads: one owner thread.
class LineReader {
 public:
  LineReader(FileHandle file, size_t max_line_bytes);
  // Nothing at the end. The view lives until the next call. Error: kConfiguration (reading failed),
  // kInvalidArgument (a line is longer than the limit).
  Result<std::optional<std::string_view>> next();
  uint64_t line() const { return line_; }         // number of the last line, from 1
  uint64_t bytes_read() const { return bytes_; }  // of the lines handed out

 private:
  FileHandle file_;
  size_t max_line_bytes_;
  std::string buffer_;
  size_t start_ = 0;  // of the next line in buffer_
  bool at_end_ = false;
  uint64_t line_ = 0;
  uint64_t bytes_ = 0;
};

// Writes a file beside its final name and renames it when it is whole, so that a failure leaves the old one.
// Threads: one owner thread.
class OutputFile {
 public:
  // Error of each method: kConfiguration, for a file that cannot be written.
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Result<void> write(std::string_view bytes);
  // Flushes, synchronises and renames. Once.
  Result<void> commit();

 private:
  OutputFile(std::string path, std::string temporary, std::FILE* file);
  Error failed(std::string_view what) const;

  std::string path_;
  std::string temporary_;  // empty: standard output, or a device, written in place
  std::FILE* file_;
};

}  // namespace skua::cli

// load and dump: many keys between a file and the cluster.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/escape.h"
#include "client/cli/exit_code.h"
#include "client/cli/files.h"
#include "client/cli/progress.h"
#include "client/cli/record.h"

namespace skua::cli {
namespace {

constexpr size_t kBatchRecords = 512;
constexpr size_t kBatchBytes = size_t{8} << 20;
constexpr size_t kWriteBytes = size_t{1} << 20;

bool shows_progress(const Arguments& arguments) {
  return arguments.progress.value_or(isatty(STDERR_FILENO) == 1);
}

uint64_t file_bytes(std::FILE* file) {
  struct stat info {};
  return fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
}

struct Failure {
  int exit_code = 0;
  uint64_t line = 0;
  std::string message;
};

// Loader stores a file's records in batches. A key that comes twice starts a new batch, so that its last line wins.
// Borrows all it is given. Threads: one owner thread.
class Loader {
 public:
  Loader(const Arguments& arguments, Session& session, Progress& progress, LineReader& lines)
      : arguments_(arguments), session_(session), progress_(progress), lines_(lines) {}

  // Up to the end or to the first line that fails; what stands before that line is stored.
  std::optional<Failure> run() {
    for (;;) {
      const auto line = lines_.next();
      if (!line) {
        const bool malformed = line.error().code() == StatusCode::kInvalidArgument;
        return stop({malformed ? kExitData : kExitNoInput, lines_.line(), line.error().message()});
      }
      if (!line->has_value()) return flush();
      if ((*line)->empty()) continue;
      auto record = parse_record(arguments_.format, **line);
      if (!record) return stop({kExitData, lines_.line(), record.error().message()});
      if (auto failure = add(*std::move(record))) return failure;
    }
  }
  uint64_t stored() const { return stored_; }

 private:
  struct Pending {
    Record record;
    uint64_t line = 0;
  };

  std::optional<Failure> add(Record record) {
    const size_t bytes = record.key.size() + record.value.size();
    const bool full = batch_.size() == kBatchRecords || (!batch_.empty() && batch_bytes_ + bytes > kBatchBytes);
    if (full || keys_.contains(record.key)) {
      if (auto failure = flush()) return failure;
    }
    keys_.insert(record.key);
    batch_bytes_ += bytes;
    batch_.push_back({std::move(record), lines_.line()});
    return std::nullopt;
  }

  std::optional<Failure> flush() {
    std::vector<MultiPutItem> items(batch_.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const Record& record = batch_[i].record;
      items[i].key = record.key;
      items[i].value = record.value;
      items[i].options.ttl = static_cast<Nanoseconds>(record.ttl_ms) * kMillisecond;
    }
    session_.multi_put(items);
    std::optional<Failure> failure;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].result) {
        ++stored_;
      } else if (!failure) {
        const Status& status = items[i].result.error();
        failure = Failure{exit_code_of(status.code()), batch_[i].line, status.to_string()};
      }
    }
    batch_.clear();
    keys_.clear();
    batch_bytes_ = 0;
    progress_.update(lines_.bytes_read(), stored_);
    return failure;
  }

  std::optional<Failure> stop(Failure failure) {
    auto earlier = flush();
    return earlier ? std::move(earlier) : std::optional(std::move(failure));
  }

  const Arguments& arguments_;
  Session& session_;
  Progress& progress_;
  LineReader& lines_;
  std::vector<Pending> batch_;
  std::unordered_set<std::string> keys_;
  size_t batch_bytes_ = 0;
  uint64_t stored_ = 0;
};

void print_summary(const Arguments& arguments, std::string_view verb_past, std::FILE* to, const Progress& progress) {
  const ProgressState state = progress.state();
  if (arguments.json) {
    std::fprintf(to, "{\"keys\":%llu,\"bytes\":%llu}\n", static_cast<unsigned long long>(state.keys),
                 static_cast<unsigned long long>(state.done_bytes));
  } else {
    std::fprintf(stderr, "%s\n", summary_line(verb_past, state).c_str());
  }
}

// Bytes that the cluster's live values take, as far as the servers say; 0: unknown.
uint64_t live_bytes(Client& client) {
  const auto info = client.cluster_info();
  if (!info) return 0;
  uint64_t sum = 0;
  for (const ServerInfo& server : info->servers) {
    const auto statistics = client.server_statistics(server.id);
    if (statistics) sum += statistics->value_or_zero("memory_used_bytes");
  }
  return sum;
}

}  // namespace

int run_load(const Arguments& arguments, const Clock& clock, Session& session) {
  auto file = open_input(arguments.file);
  if (!file) return report(arguments, kExitNoInput, file.error().message());
  Progress progress(clock, shows_progress(arguments), "load", file_bytes(file->get()));
  LineReader lines(*std::move(file), kMaxLineBytes);
  Loader loader(arguments, session, progress, lines);
  const auto failure = loader.run();
  progress.update(lines.bytes_read(), loader.stored());
  progress.clear();
  if (failure) {
    const std::string line = std::to_string(failure->line);
    return report(arguments, failure->exit_code,
                  (arguments.file == "-" ? "standard input" : arguments.file) + ":" + line + ": " + failure->message +
                      " (" + std::to_string(loader.stored()) + " keys are stored, all before line " + line +
                      "; resume from that line)");
  }
  print_summary(arguments, "loaded", stdout, progress);
  return kExitDone;
}

int run_dump(const Arguments& arguments, const Clock& clock, Client& client, Session& session) {
  auto file = OutputFile::create(arguments.file);
  if (!file) return report(arguments, kExitCannotCreate, file.error().message());
  const bool bar = shows_progress(arguments);
  Progress progress(clock, bar, "dump", bar ? live_bytes(client) : 0);
  std::string buffer;
  uint64_t keys = 0;
  uint64_t bytes = 0;
  Result<void> written;
  const auto scanned = session.scan([&](const ScanItem& item) {
    const size_t before = buffer.size();
    append_record(buffer, arguments.format, item.key, item.value, item.ttl_left_ms);
    bytes += buffer.size() - before;
    ++keys;
    progress.update(bytes, keys);
    if (buffer.size() < kWriteBytes) return true;
    written = (*file)->write(buffer);
    buffer.clear();
    return written.has_value();
  });
  if (written) written = (*file)->write(buffer);
  if (scanned && written) written = (*file)->commit();
  progress.clear();
  if (!scanned) return report(arguments, scanned.error());
  if (!written) return report(arguments, kExitCannotCreate, written.error().message());
  print_summary(arguments, "dumped", arguments.file == "-" ? stderr : stdout, progress);
  return kExitDone;
}

}  // namespace skua::cli

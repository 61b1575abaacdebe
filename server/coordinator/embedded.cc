#include <rocksdb/db.h>

#include <filesystem>

#include "server/coordinator/map_store.h"

namespace skua {
namespace {

constexpr std::string_view kFormatKey = "format";
constexpr std::string_view kFormat = "skua coordinator 1";
constexpr std::string_view kMapKey = "cluster_map";

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

class EmbeddedMapStore final : public MapStore {
 public:
  EmbeddedMapStore(std::unique_ptr<rocksdb::DB> database, std::string directory)
      : database_(std::move(database)), directory_(std::move(directory)) {}

  // A fresh directory gets the format's mark; another's content is refused.
  Result<void> check_format() {
    std::string format;
    const rocksdb::Status read = database_->Get({}, slice(kFormatKey), &format);
    if (read.ok() && format == kFormat) return {};
    if (read.ok()) {
      return fail(StatusCode::kConfiguration,
                  directory_ + ": its format is '" + format + "', this release reads '" + std::string(kFormat) +
                      "'; use the release that wrote it, or another --data-dir");
    }
    if (!read.IsNotFound()) return broken("read", read);
    const std::unique_ptr<rocksdb::Iterator> iterator(database_->NewIterator({}));
    iterator->SeekToFirst();
    if (iterator->Valid()) {
      return fail(StatusCode::kConfiguration,
                  directory_ + ": holds a RocksDB database that is not a coordinator's; use another --data-dir");
    }
    return put(kFormatKey, std::string(kFormat));
  }

  Result<std::optional<control::ClusterMap>> load() override {
    std::string bytes;
    const rocksdb::Status read = database_->Get({}, slice(kMapKey), &bytes);
    if (read.IsNotFound()) return std::nullopt;
    if (!read.ok()) return broken("read", read);
    control::ClusterMap map;
    if (!map.ParseFromString(bytes) || map.epoch() == 0) {
      return fail(StatusCode::kCorruption, directory_ + ": the stored cluster map cannot be read (" +
                                               std::to_string(bytes.size()) + " bytes)");
    }
    return map;
  }

  Result<bool> compare_and_swap(uint64_t expected_epoch, const control::ClusterMap& map) override {
    auto stored = load();
    if (!stored) return Error(stored.error());
    if ((*stored ? (*stored)->epoch() : 0) != expected_epoch) return false;
    SKUA_RETURN_IF_ERROR(put(kMapKey, map.SerializeAsString()));
    return true;
  }

 private:
  Result<void> put(std::string_view key, const std::string& value) {
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status written = database_->Put(options, slice(key), value);
    if (!written.ok()) return broken("write", written);
    return {};
  }
  Error broken(std::string_view step, const rocksdb::Status& status) const {
    return fail(StatusCode::kResourceExhausted,
                "coordinator's data in " + directory_ + ": " + std::string(step) + ": " + status.ToString());
  }

  std::unique_ptr<rocksdb::DB> database_;
  const std::string directory_;
};

}  // namespace

Result<std::unique_ptr<MapStore>> open_embedded_map_store(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return fail(StatusCode::kConfiguration, "coordinator's data in " + directory + ": cannot be created: " +
                                                error.message() + "; choose another --data-dir");
  }
  rocksdb::Options options;
  options.create_if_missing = true;
  options.max_open_files = 64;
  options.write_buffer_size = size_t{1} << 20;
  options.keep_log_file_num = 4;
  options.info_log_level = rocksdb::WARN_LEVEL;
  rocksdb::DB* database = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, directory, &database);
  if (!opened.ok()) {
    const std::string text = opened.ToString();
    const bool locked = text.find("lock") != std::string::npos || text.find("LOCK") != std::string::npos;
    return fail(locked ? StatusCode::kUnavailable : StatusCode::kConfiguration,
                "coordinator's data in " + directory +
                    (locked ? ": another process uses it: " : ": cannot be opened: ") + text + "; " +
                    (locked ? "stop that process or choose" : "choose") + " another --data-dir");
  }
  auto store = std::make_unique<EmbeddedMapStore>(std::unique_ptr<rocksdb::DB>(database), directory);
  SKUA_RETURN_IF_ERROR(store->check_format());
  SKUA_RETURN_IF_ERROR(store->load());
  return store;
}

}  // namespace skua

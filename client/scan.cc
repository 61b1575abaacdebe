// scan: walks every partition's tables with large READs and gathers what their LIVE words name.
#include <algorithm>
#include <cstring>

#include "client/data_path.h"

namespace skua {

using proto::SlotWord;

namespace {

constexpr size_t kBucketsAtOnce = 256;            // 16 KiB a READ
constexpr size_t kStepBytes = size_t{1} << 20;    // a step ends when it has found so much
constexpr size_t kWordsPerBucket = proto::kBucketBytes / sizeof(uint64_t);
constexpr int kBlockTries = 8;                    // READs of one block and its slot before the attempt starts over

// A key that hashes to `partition`, to give the scan of it a place. Any will do; the first is found within a few tries
// for each partition.
std::string key_in(uint32_t partition, uint32_t partitions) {
  for (uint64_t i = 0;; ++i) {
    std::string key = "scan" + std::to_string(i);
    if (proto::KeyHash::of(key).partition(partitions) == partition) return key;
  }
}

class PartitionScan {
 public:
  PartitionScan(Operation& operation, ScanCursor& cursor) : operation_(operation), cursor_(cursor) {}

  // Goes on from the cursor. Anything but kDone: the connection broke or a block could not be read; what was found
  // stays found.
  Task<Step> run() {
    const auto tables = operation_.partition().tables;
    for (uint64_t i = 0; i < tables.size(); ++i) {
      const proto::TableRef table = tables[i];
      if (is_done(i, table.local_depth())) continue;
      if (cursor_.table != table.bits()) {
        // A table that was replaced half-way is looked at again as its successors.
        cursor_.found_before.merge(cursor_.found_in_table);
        cursor_.found_in_table.clear();
        cursor_.table = table.bits();
        cursor_.next_word = 0;
      }
      const uint64_t words = proto::table_buckets(table.log2_buckets()) * kWordsPerBucket;
      while (cursor_.next_word < words) {
        if (found_bytes_ >= kStepBytes) co_return Step::kDone;
        const Step step = co_await scan_buckets(table.offset(), words);
        if (step != Step::kDone) co_return step;
      }
      cursor_.done.insert(prefix(i, table.local_depth()));
      cursor_.found_in_table.clear();
    }
    cursor_.finished = true;
    co_return Step::kDone;
  }

 private:
  static ScanCursor::Prefix prefix(uint64_t index, uint32_t depth) {
    return {depth, index & ((uint64_t{1} << depth) - 1)};
  }
  // This table, or one that it was split from.
  bool is_done(uint64_t index, uint32_t depth) const {
    for (uint32_t d = 0; d <= depth; ++d) {
      if (cursor_.done.contains(prefix(index, d))) return true;
    }
    return false;
  }

  // Looks at the words from the cursor to the end of one READ, or until enough was found.
  Task<Step> scan_buckets(uint64_t table_offset, uint64_t words) {
    const uint64_t first = cursor_.next_word / kWordsPerBucket * kWordsPerBucket;
    const uint64_t end = std::min<uint64_t>(words, first + kBucketsAtOnce * kWordsPerBucket);
    Scratch buckets = operation_.core().scratch().take((end - first) * sizeof(uint64_t));
    Batch batch;
    operation_.add_read(batch, table_offset + first * sizeof(uint64_t), buckets.data(),
                        (end - first) * sizeof(uint64_t));
    if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
    for (; cursor_.next_word < end && found_bytes_ < kStepBytes; ++cursor_.next_word) {
      const uint64_t at = cursor_.next_word;
      uint64_t raw = 0;
      std::memcpy(&raw, buckets.data() + (at - first) * sizeof raw, sizeof raw);
      if (at % kWordsPerBucket == 0 || !SlotWord(raw).is_live()) continue;
      const Step step = co_await gather(table_offset + at * sizeof raw, SlotWord(raw).without_frozen());
      if (step != Step::kDone) co_return step;
    }
    co_return Step::kDone;
  }

  // The block may have been replaced since its word was read: then the slot is read again, so that a key that only
  // changes its value is not missed.
  Task<Step> gather(uint64_t slot_offset, SlotWord word) {
    for (int tries = 0; tries < kBlockTries; ++tries) {
      const size_t bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
      Scratch block = operation_.core().scratch().take(bytes);
      Batch batch;
      operation_.add_read(batch, word.block_offset(), block.data(), bytes);
      if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
      proto::BlockView view;
      if (proto::BlockView::parse({block.data(), bytes}, word, view) == proto::BlockFault::kNone) {
        keep(view);
        co_return Step::kDone;
      }
      uint64_t raw = 0;
      batch.clear();
      operation_.add_read(batch, slot_offset, &raw, sizeof raw);
      if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
      word = SlotWord(raw).without_frozen();
      if (!word.is_live()) co_return Step::kDone;
    }
    co_return Step::kRestart;
  }

  void keep(const proto::BlockView& view) {
    const uint64_t now = operation_.now_ms();
    if (view.expired(now)) return;
    const uint64_t hash = proto::keyed_hash(view.key(), operation_.core().cache_secret());
    if (cursor_.found_before.contains(hash)) return;
    cursor_.found_in_table.insert(hash);
    const uint64_t expiry = view.header().expiry_ms();
    ScanCursor::Item item;
    item.bytes.reserve(view.key().size() + view.value().size());
    item.bytes.append(view.key()).append(view.value());
    item.key_bytes = view.key().size();
    item.version = {proto::write_id(view.header().generation)};
    item.ttl_left_ms = expiry == 0 ? 0 : expiry - now;
    found_bytes_ += item.bytes.size() + sizeof item;
    cursor_.found.push_back(std::move(item));
  }

  Operation& operation_;
  ScanCursor& cursor_;
  size_t found_bytes_ = 0;
};

}  // namespace

Task<Result<void>> scan_operation(SessionCore& core, uint32_t partition, ScanCursor& cursor) {
  const std::string key = key_in(partition, core.partitions());
  Operation operation(core, OperationKind::kScan, key);
  PartitionScan scan(operation, cursor);
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    if (co_await scan.run() == Step::kDone) co_return Result<void>();
  }
}

}  // namespace skua

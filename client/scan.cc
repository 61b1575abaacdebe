// scan: walks every partition's tables with large READs and shows what their LIVE words name.
#include <algorithm>
#include <cstring>
#include <set>

#include "client/data_path.h"

namespace skua {

using proto::SlotWord;

namespace {

constexpr size_t kBucketsAtOnce = 256;  // 16 KiB a READ

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
  PartitionScan(Operation& operation, const std::function<bool(const ScanItem&)>& visit)
      : operation_(operation), visit_(visit) {}

  // kRestart: the directory changed or the connection broke; tables that were finished are not shown again.
  Task<Step> run() {
    const auto tables = operation_.partition().tables;
    for (const proto::TableRef table : tables) {
      if (stopped_ || done_.contains(table.bits())) continue;
      const uint64_t buckets = proto::table_buckets(table.log2_buckets());
      for (uint64_t bucket = 0; bucket < buckets && !stopped_; bucket += kBucketsAtOnce) {
        const size_t count = std::min<uint64_t>(kBucketsAtOnce, buckets - bucket);
        const Step step = co_await scan_buckets(table.offset() + bucket * proto::kBucketBytes, count);
        if (step != Step::kDone) co_return step;
      }
      done_.insert(table.bits());
    }
    co_return Step::kDone;
  }
  bool stopped() const { return stopped_; }

 private:
  Task<Step> scan_buckets(uint64_t offset, size_t count) {
    Scratch buckets = operation_.core().scratch().take(count * proto::kBucketBytes);
    Batch batch;
    operation_.add_read(batch, offset, buckets.data(), count * proto::kBucketBytes);
    if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
    for (size_t i = 0; i < count * 8 && !stopped_; ++i) {
      uint64_t raw = 0;
      std::memcpy(&raw, buckets.data() + i * 8, sizeof raw);
      if (i % 8 == 0 || !SlotWord(raw).is_live()) continue;
      const Step step = co_await show(offset + i * 8, SlotWord(raw).without_frozen());
      if (step != Step::kDone) co_return step;
    }
    co_return Step::kDone;
  }

  // The block may have been replaced since its word was read: then the slot is read again, so that a key that only
  // changes its value is not missed.
  Task<Step> show(uint64_t slot_offset, SlotWord word) {
    for (;;) {
      const size_t bytes = proto::size_class_bytes(static_cast<int>(word.size_class()));
      Scratch block = operation_.core().scratch().take(bytes);
      Batch batch;
      operation_.add_read(batch, word.block_offset(), block.data(), bytes);
      if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
      proto::BlockView view;
      if (proto::BlockView::parse({block.data(), bytes}, word, view) == proto::BlockFault::kNone) {
        visit(view, word);
        co_return Step::kDone;
      }
      uint64_t raw = 0;
      batch.clear();
      operation_.add_read(batch, slot_offset, &raw, sizeof raw);
      if (co_await operation_.post(batch) != Step::kDone) co_return Step::kBroken;
      const SlotWord now = SlotWord(raw).without_frozen();
      if (!now.is_live()) co_return Step::kDone;
      word = now;
    }
  }

  void visit(const proto::BlockView& view, SlotWord word) {
    const uint64_t now = operation_.now_ms();
    if (view.expired(now)) return;
    const uint64_t expiry = view.header().expiry_ms();
    const ScanItem item{view.key(), view.value(), {word.block_units(), view.header().generation},
                        expiry == 0 ? 0 : expiry - now};
    if (!visit_(item)) stopped_ = true;
  }

  Operation& operation_;
  const std::function<bool(const ScanItem&)>& visit_;
  std::set<uint64_t> done_;
  bool stopped_ = false;
};

}  // namespace

Task<Result<bool>> scan_operation(SessionCore& core, uint32_t partition,
                                  const std::function<bool(const ScanItem&)>& visit) {
  const std::string key = key_in(partition, core.partitions());
  Operation operation(core, OperationKind::kScan, key);
  PartitionScan scan(operation, visit);
  for (bool first = true;; first = false) {
    if (!first) {
      if (auto more = co_await operation.retry(); !more) co_return operation.failed(more.error());
    }
    if (!operation.prepared()) {
      if (auto ready = co_await operation.prepare(); !ready) co_return operation.failed(ready.error());
    }
    if (co_await scan.run() == Step::kDone) co_return !scan.stopped();
  }
}

}  // namespace skua

#include "client/block_pool.h"

#include <algorithm>

#include "proto/control.pb.h"
#include "proto/size_class.h"

namespace skua {

BlockPool::Shelf& BlockPool::shelf(uint32_t partition, uint32_t size_class) {
  const auto [entry, fresh] = shelves_.try_emplace(partition * 64 + size_class);
  Shelf& result = entry->second;
  if (fresh) {
    result.partition = partition;
    result.size_class = size_class;
    const uint64_t bytes = proto::size_class_bytes(static_cast<int>(size_class));
    result.want = static_cast<uint32_t>(std::clamp<uint64_t>(kMostWantBytes / 16 / bytes, 1, kFirstWant));
  }
  return result;
}

std::optional<GrantedBlock> BlockPool::take(Shelf& shelf) {
  while (shelf.current < shelf.grants.size()) {
    Shelf::GrantList& grant = shelf.grants[shelf.current];
    if (SKUA_PLANTED_BUG("block-taken-twice") && grant.taken % 2 == 1) return grant.blocks[grant.taken - 1];
    if (grant.taken < grant.blocks.size()) {
      --shelf.available;
      ++unreported_;
      return grant.blocks[grant.taken++];
    }
    ++shelf.current;
  }
  return std::nullopt;
}

bool BlockPool::should_request(Shelf& shelf) {
  if (shelf.requested || shelf.available > shelf.last_grant / 2) return false;
  shelf.requested = true;
  return true;
}

void BlockPool::add(Shelf& shelf, const control::Grant& grant) {
  shelf.requested = false;
  Shelf::GrantList list;
  list.id = grant.grant_id();
  const auto count = static_cast<size_t>(std::min(grant.block_units_size(), grant.generations_size()));
  list.blocks.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int index = static_cast<int>(i);
    list.blocks.push_back({grant.block_units(index), grant.generations(index)});
  }
  // Asking often enough to need another grant at once means that the grants are too small.
  const uint64_t bytes = proto::size_class_bytes(static_cast<int>(shelf.size_class));
  const uint64_t most = std::clamp<uint64_t>(kMostWantBytes / bytes, 1, kMostWant);
  if (shelf.available == 0 || shelf.last_grant != 0) {
    shelf.want = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{shelf.want} * 2, most));
  }
  shelf.last_grant = count;
  shelf.available += count;
  shelf.grants.push_back(std::move(list));
}

void BlockPool::report(control::EpochReport& report, bool return_unused) {
  for (auto& [key, shelf] : shelves_) {
    for (Shelf::GrantList& grant : shelf.grants) {
      const bool finished = return_unused || grant.taken == grant.blocks.size();
      if (grant.taken == grant.reported && !finished) continue;
      control::GrantUse& use = *report.add_grants();
      use.set_grant_id(grant.id);
      use.set_consumed(static_cast<uint32_t>(grant.taken));
      use.set_returned(return_unused && grant.taken < grant.blocks.size());
      grant.reported = grant.taken;
    }
    const auto spent = [&](const Shelf::GrantList& g) { return return_unused || g.taken == g.blocks.size(); };
    std::erase_if(shelf.grants, spent);
    shelf.current = 0;
    if (return_unused) shelf.available = 0;
    if (return_unused) shelf.want = std::max<uint32_t>(1, shelf.want / 4);
  }
  unreported_ = 0;
  wants_report_ = false;
}

void BlockPool::clear() {
  shelves_.clear();
  unreported_ = 0;
  wants_report_ = false;
}

}  // namespace skua

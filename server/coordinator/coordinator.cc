#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <bit>

#include "common/base/net_address.h"
#include "common/base/units.h"
#include "proto/limits.h"

namespace skua {
namespace {

constexpr size_t kMaxNameBytes = 255;

void assign_round_robin(control::ClusterMap& map) {
  map.set_forming(false);
  for (uint32_t partition = 0; partition < map.partitions(); ++partition) {
    const int place = static_cast<int>(partition % static_cast<uint32_t>(map.servers_size()));
    map.add_assignments()->set_primary(map.servers(place).id());
  }
}

control::ClusterMap new_cluster(const CoordinatorOptions& options, Entropy& entropy) {
  control::ClusterMap map;
  map.set_cluster_id(entropy.next() | 1);  // never 0, which stands for "any"
  map.set_epoch(1);
  map.set_partitions(options.partitions != 0 ? options.partitions : proto::kDefaultPartitions);
  map.set_initial_servers(std::max<uint32_t>(options.initial_servers, 1));
  map.set_forming(true);
  return map;
}

}  // namespace

Result<std::unique_ptr<Coordinator>> Coordinator::open(const CoordinatorOptions& options, MapStore& store,
                                                       const Clock& clock, Entropy& entropy) {
  if (options.partitions != 0 && (!std::has_single_bit(options.partitions) ||
                                  options.partitions > proto::kMaxPartitions)) {
    return fail(StatusCode::kConfiguration, "--partitions " + std::to_string(options.partitions) +
                                                ": choose a power of two from 1 to " +
                                                std::to_string(proto::kMaxPartitions));
  }
  auto stored = store.load();
  if (!stored) return Error(stored.error());
  std::unique_ptr<Coordinator> coordinator(new Coordinator(options, store, clock));
  if (*stored) {
    coordinator->map_ = std::move(**stored);
    if (options.partitions != 0 && options.partitions != coordinator->map_.partitions()) {
      return fail(StatusCode::kConfiguration,
                  "--partitions " + std::to_string(options.partitions) + ": this cluster was made with " +
                      std::to_string(coordinator->map_.partitions()) +
                      ", which cannot be changed; leave the setting out, or start a new cluster in another --data-dir");
    }
    for (const control::Server& server : coordinator->map_.servers()) {
      coordinator->presence_[server.id()] = {clock.now(), false};  // a chance to be heard of
    }
    return coordinator;
  }
  const control::ClusterMap fresh = new_cluster(options, entropy);
  auto swapped = store.compare_and_swap(0, fresh);
  if (!swapped) return Error(swapped.error());
  if (!*swapped) return fail(StatusCode::kUnavailable, "another coordinator made the cluster in the same moment");
  coordinator->map_ = fresh;
  return coordinator;
}

control::Server* Coordinator::find(control::ClusterMap& map, uint32_t server) const {
  for (control::Server& entry : *map.mutable_servers()) {
    if (entry.id() == server) return &entry;
  }
  return nullptr;
}

Result<control::Server*> Coordinator::member(control::ClusterMap& map, uint32_t server, uint64_t instance) const {
  control::Server* const entry = find(map, server);
  if (entry == nullptr) {
    return fail(StatusCode::kStaleEpoch, "no server " + std::to_string(server) + " in this cluster; join again");
  }
  if (entry->instance() != instance) {
    return fail(StatusCode::kStaleEpoch, "server " + std::to_string(server) + " ('" + entry->name() +
                                             "') was taken over by a later start of it at " + entry->control_address());
  }
  return entry;
}

Result<bool> Coordinator::change(uint64_t expected_epoch, const control::ClusterMap& next) {
  control::ClusterMap stored = next;
  stored.set_epoch(expected_epoch + 1);
  auto swapped = store_.compare_and_swap(expected_epoch, stored);
  if (!swapped || !*swapped) return swapped;
  map_ = std::move(stored);
  if (changed_) changed_();
  return true;
}

Result<void> Coordinator::must_change(control::ClusterMap next) {
  auto swapped = change(map_.epoch(), next);
  if (!swapped) return Error(swapped.error());
  if (!*swapped) {
    return fail(StatusCode::kUnavailable, "the cluster map changed from outside past epoch " +
                                              std::to_string(map_.epoch()) + "; restart the coordinator");
  }
  return {};
}

void Coordinator::heard_of(uint32_t server) { presence_[server] = {clock_.now(), true}; }

Result<uint32_t> Coordinator::join(const control::Join& request) {
  if (request.name().empty() || request.name().size() > kMaxNameBytes || request.instance() == 0) {
    return fail(StatusCode::kInvalidArgument, "join without instance, or with a name of " +
                                                  std::to_string(request.name().size()) + " bytes; 1 to " +
                                                  std::to_string(kMaxNameBytes) + " are taken");
  }
  SKUA_RETURN_IF_ERROR(parse_net_address(request.control_address()));
  control::ClusterMap next = map_;
  control::Server* entry = nullptr;
  uint32_t id_max = 0;
  for (control::Server& server : *next.mutable_servers()) {
    if (server.name() == request.name()) entry = &server;
    id_max = std::max(id_max, server.id());
  }
  if (entry != nullptr && entry->instance() == request.instance() && entry->alive() &&
      entry->control_address() == request.control_address()) {
    heard_of(entry->id());
    return entry->id();
  }
  if (entry != nullptr && entry->instance() != request.instance()) {
    const Presence& presence = presence_[entry->id()];
    if (presence.connected && clock_.now() - presence.heard < options_.alive_timeout) {
      return fail(StatusCode::kConfiguration,
                  "the name '" + request.name() + "' belongs to server " + std::to_string(entry->id()) +
                      ", which is alive at " + entry->control_address() +
                      "; start this one with another --name (if that machine is dead, wait " +
                      format_duration(options_.alive_timeout) + " and start again)");
    }
  }
  if (entry == nullptr) {
    if (id_max >= proto::kMaxServerId) {
      return fail(StatusCode::kResourceExhausted, "this cluster has had " + std::to_string(id_max) +
                                                      " servers, as many as there can be; start again under the "
                                                      "--name of one that is gone");
    }
    entry = next.add_servers();
    entry->set_id(id_max + 1);
    entry->set_name(request.name());
  }
  const uint32_t id = entry->id();
  entry->set_control_address(request.control_address());
  entry->set_instance(request.instance());
  entry->set_memory_bytes(request.memory_bytes());
  entry->set_alive(true);
  if (next.forming() && static_cast<uint32_t>(next.servers_size()) >= next.initial_servers()) assign_round_robin(next);
  heard_of(id);
  SKUA_RETURN_IF_ERROR(must_change(std::move(next)));
  return id;
}

Result<void> Coordinator::heartbeat(uint32_t server, uint64_t instance) {
  auto entry = member(map_, server, instance);
  if (!entry) return Error(entry.error());
  heard_of(server);
  if ((*entry)->alive()) return {};
  control::ClusterMap next = map_;
  find(next, server)->set_alive(true);
  return must_change(std::move(next));
}

Result<void> Coordinator::leave(uint32_t server, uint64_t instance) {
  control::ClusterMap next = map_;
  auto entry = member(next, server, instance);
  if (!entry) return Error(entry.error());
  presence_[server].connected = false;
  if (!(*entry)->alive()) return {};
  (*entry)->set_alive(false);
  return must_change(std::move(next));
}

void Coordinator::disconnected(uint32_t server, uint64_t instance) {
  if (member(map_, server, instance)) presence_[server].connected = false;
}

Result<void> Coordinator::check_alive() {
  control::ClusterMap next = map_;
  bool changed = false;
  for (control::Server& server : *next.mutable_servers()) {
    if (!server.alive() || clock_.now() - presence_[server.id()].heard < options_.alive_timeout) continue;
    server.set_alive(false);
    changed = true;
  }
  if (!changed) return {};
  return must_change(std::move(next));
}

}  // namespace skua

#pragma once
// SkuaStores gives a workload's threads sessions of one client.
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/ycsb/kv_store.h"
#include "bench/ycsb/report.h"
#include "client/client.h"

namespace skua::bench {

class SkuaStores : public ycsb::KvStoreFactory {
 public:
  // Waits until the cluster's partitions are served. Error: kUnavailable, or as Client::connect.
  static Result<std::unique_ptr<SkuaStores>> connect(ClientOptions options, const Clock& clock);

  Result<std::unique_ptr<ycsb::KvStore>> open() override;
  // CPU time that each server's process has used so far.
  Result<std::vector<ycsb::ServerCpu>> server_cpu();
  Result<ClusterInfo> cluster_info() { return client_->cluster_info(); }
  // How the first session that was opened reaches each server, and why so. Threads: any.
  std::string transport_report() const;

 private:
  explicit SkuaStores(std::unique_ptr<Client> client) : client_(std::move(client)) {}
  std::unique_ptr<Client> client_;
  mutable std::mutex mutex_;
  std::string transport_report_;  // guarded by mutex_
};

}  // namespace skua::bench

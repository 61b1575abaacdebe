// What stands in for the transport where libibverbs and librdmacm were not there at build time.
#include "common/transport/verbs/inspect.h"
#include "common/transport/verbs/verbs.h"

namespace skua {
namespace {

Error built_without() {
  return fail(StatusCode::kConfiguration,
              "this build has no verbs transport: install libibverbs-dev and librdmacm-dev and configure again "
              "(SKUA_VERBS=ON insists on it), or use another transport");
}

class AbsentConnector final : public Connector {
 public:
  std::string_view name() const override { return "verbs"; }
  Result<std::unique_ptr<QueuePair>> connect(const ConnectTarget&) override { return built_without(); }
};

class AbsentQueries final : public DeviceQueries {
 public:
  Result<std::vector<DeviceFacts>> devices() override { return built_without(); }
};

}  // namespace

std::unique_ptr<DeviceQueries> make_inspecting_queries() { return std::make_unique<AbsentQueries>(); }
bool verbs_built_in() { return false; }
VerbsCounts verbs_counts() { return {}; }
std::unique_ptr<Connector> make_verbs_connector(const VerbsSettings&, const Clock&) {
  return std::make_unique<AbsentConnector>();
}
Result<std::unique_ptr<Target>> make_verbs_target(const VerbsTargetOptions&, const ArenaInfo&) {
  return built_without();
}

}  // namespace skua

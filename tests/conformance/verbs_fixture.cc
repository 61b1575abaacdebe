#include "tests/conformance/verbs_fixture.h"

#include <csignal>
#include <vector>

#include "common/base/check.h"

namespace skua::conformance {
namespace {

class VerbsFixture final : public Fixture {
 public:
  VerbsFixture(VerbsAtomics atomics, const VerbsSettings& settings) : atomics_(atomics), settings_(settings) {
    std::signal(SIGPIPE, SIG_IGN);  // soft-iWARP raises it in who posts to a connection that has just ended
    const Arena nothing(kMiB);
    const auto target = make_target({}, nothing.info());
    if (!target) missing_ = target.error().to_string() + " (`ctest -L rdma` runs it in a virtual machine)";
  }

  Result<std::unique_ptr<Target>> make_target(const TargetSettings& settings, const ArenaInfo& arena) override {
    VerbsTargetOptions options;
    options.max_connections = settings.max_connections;
    options.atomics = atomics_;
    options.settings = settings_;
    return make_verbs_target(options, arena);
  }
  std::unique_ptr<Connector> make_connector(const Clock& clock) override {
    return make_verbs_connector(settings_, clock);
  }
  Descriptor open_socket(const std::string&) override { return {}; }  // its handshake is no byte stream
  std::pair<Descriptor, std::string> make_silent_listener() override;
  bool server_executes() const override { return false; }
  std::string missing() const override { return missing_; }

 private:
  const VerbsAtomics atomics_;
  const VerbsSettings settings_;
  std::string missing_;
};

// A port of the device's address at which datagrams of the connection manager are left unanswered: an address of its
// network that nobody has.
std::pair<Descriptor, std::string> VerbsFixture::make_silent_listener() {
  const Arena nothing(kMiB);
  const auto target = make_target({}, nothing.info());
  SKUA_CHECK(target.has_value(), "a target was made before");
  std::string address = (*target)->endpoint();
  address.replace(address.rfind('.') + 1, std::string::npos, "253:7999");
  return {Descriptor(), address};
}

}  // namespace

std::unique_ptr<Fixture> make_verbs_fixture(VerbsAtomics atomics, const VerbsSettings& settings) {
  return std::make_unique<VerbsFixture>(atomics, settings);
}

}  // namespace skua::conformance

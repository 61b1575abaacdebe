#include "common/transport/sim/link.h"

#include <algorithm>
#include <utility>

namespace skua::sim {

Link::Link(SimWorld& world, SimProcess& dialler, SimProcess& acceptor)
    : world_(world), id_(world.next_connection_id()) {
  ends_[0].process = &dialler;
  ends_[1].process = &acceptor;
  for (End& end : ends_) end.incarnation = end.process->incarnation();
}

void Link::set_events(Side side, ChannelEvents events) {
  if (ends_[side].open) ends_[side].events = std::move(events);
}

void Link::forget_events() {
  for (End& end : ends_) {
    end.open = false;
    end.events = ChannelEvents{};
    end.inbox.clear();
  }
}

bool Link::usable(const End& end) const {
  return end.open && end.process->alive() && end.process->incarnation() == end.incarnation;
}

void Link::open(Side side, std::function<void()> opened) {
  Item item;
  item.opened = std::move(opened);
  push(side, std::move(item), world_.between(world_.plan().message_latency_min, world_.plan().message_latency_max));
}

void Link::send(Side from, const control::Envelope& envelope) {
  if (!usable(ends_[from])) return;
  if (world_.random().chance(world_.plan().message_break_chance)) {
    break_off("the connection was reset");
    return;
  }
  const std::string bytes = envelope.SerializeAsString();
  trace("message", from, bytes.size(), hash_bytes(bytes.data(), bytes.size()));
  Item item;
  item.envelope = envelope;
  push(1 - from, std::move(item), world_.between(world_.plan().message_latency_min, world_.plan().message_latency_max));
  if (world_.message_observer_) world_.message_observer_(*ends_[from].process);
}

void Link::push(Side to, Item item, Nanoseconds delay) {
  End& end = ends_[to];
  end.inbox.push_back(std::move(item));
  end.last_delivery = std::max(end.last_delivery, world_.now() + delay);
  world_.schedule(end.last_delivery - world_.now(), [self = shared_from_this(), to] { self->deliver(to); },
                  end.process);
}

// Every event takes the oldest item, so that delays and pauses cannot reorder them.
void Link::deliver(Side to) {
  End& end = ends_[to];
  if (!usable(end) || end.inbox.empty()) return;
  if (world_.is_cut(*ends_[0].process, *ends_[1].process)) return;  // heal delivers
  Item item = std::move(end.inbox.front());
  end.inbox.pop_front();
  if (item.opened) {
    item.opened();
  } else if (item.envelope) {
    trace("delivered", to, 0, 0);
    const auto on_envelope = end.events.on_envelope;
    if (on_envelope) on_envelope(*item.envelope);
    if (world_.message_observer_) world_.message_observer_(*end.process);
  } else if (item.closed) {
    trace("channel closed", to, 0, 0);
    end.open = false;
    const auto on_closed = std::move(end.events.on_closed);
    end.events = ChannelEvents{};
    if (on_closed) on_closed(*item.closed);
  }
}

void Link::deliver_what_waits() {
  for (Side side = 0; side < 2; ++side) {
    for (size_t i = 0; i < ends_[side].inbox.size(); ++i) {
      world_.schedule(world_.between(1, world_.plan().message_latency_max),
                      [self = shared_from_this(), side] { self->deliver(side); }, ends_[side].process);
    }
  }
}

void Link::close(Side side) {
  End& end = ends_[side];
  if (!end.open) return;
  end.open = false;
  end.events = ChannelEvents{};
  end.inbox.clear();
  End& peer = ends_[1 - side];
  if (!end.process->alive() || end.process->incarnation() != end.incarnation || !usable(peer)) return;
  Item item;
  item.closed = Status(StatusCode::kPeerLost, end.process->name() + " closed the connection");
  push(1 - side, std::move(item), world_.between(world_.plan().message_latency_min, world_.plan().message_latency_max));
}

void Link::break_off(const std::string& why) {
  for (Side side = 0; side < 2; ++side) {
    End& end = ends_[side];
    if (!usable(end)) continue;
    trace("channel broken", side, 0, 0);
    std::erase_if(end.inbox, [](const Item& item) { return !item.opened; });
    Item item;
    item.closed = Status(StatusCode::kPeerLost, why + " (peer " + peer_of(side) + ")");
    push(side, std::move(item), world_.between(1, world_.plan().message_latency_max));
  }
}

void Link::end_of(const SimProcess& process, bool silent) {
  for (Side side = 0; side < 2; ++side) {
    End& end = ends_[side];
    if (end.process != &process || !end.open) continue;
    end.open = false;
    end.events = ChannelEvents{};
    end.inbox.clear();
    End& peer = ends_[1 - side];
    if (silent || !usable(peer)) continue;
    Item item;
    item.closed = Status(StatusCode::kPeerLost, process.name() + " is gone");
    push(1 - side, std::move(item),
         world_.between(world_.plan().message_latency_min, world_.plan().message_latency_max));
  }
}

bool Link::joins(const SimProcess& a, const SimProcess& b) const {
  return (ends_[0].process == &a && ends_[1].process == &b) || (ends_[0].process == &b && ends_[1].process == &a);
}

std::string Link::peer_of(Side side) const {
  return ends_[1 - side].process->name() + "#" + std::to_string(id_);
}

void Link::trace(std::string_view what, Side side, uint64_t bytes, uint64_t content) {
  TraceEvent event;
  event.at = world_.now();
  event.process = ends_[side].process->id();
  event.connection = id_;
  event.sequence = ++messages_;
  event.bytes = bytes;
  world_.trace().add(what, event, content);
}

// --- Dialling and listening -----------------------------------------------------------------------------------------

namespace {

class SimListener final : public Listener {
 public:
  using Registry = std::map<std::string, std::shared_ptr<ListenerState>>;
  SimListener(Registry& registry, std::shared_ptr<ListenerState> state)
      : registry_(registry), state_(std::move(state)) {}
  ~SimListener() override {
    state_->accept = nullptr;
    const auto place = registry_.find(state_->address.to_string());
    if (place != registry_.end() && place->second == state_) registry_.erase(place);
  }
  NetAddress address() const override { return state_->address; }

 private:
  Registry& registry_;
  std::shared_ptr<ListenerState> state_;
};

}  // namespace

Result<std::unique_ptr<Listener>> SimProcess::listen(const NetAddress& address, AcceptFunction accept) {
  auto state = std::make_shared<ListenerState>(ListenerState{this, address, std::move(accept)});
  if (address.port == 0) state->address.port = world_.next_port_++;
  if (!alive_) return fail(StatusCode::kUnavailable, name_ + " is not running");
  if (!world_.listeners_.try_emplace(state->address.to_string(), state).second) {
    return fail(StatusCode::kConfiguration, state->address.to_string() + " is taken; choose another port");
  }
  return std::make_unique<SimListener>(world_.listeners_, std::move(state));
}

void SimProcess::dial(const NetAddress& address, Nanoseconds timeout,
                      std::function<void(Result<std::shared_ptr<Channel>>)> done, ChannelEvents events) {
  if (!alive_) return;
  const auto refuse = [this, address, done](Nanoseconds delay, const std::string& why) {
    world_.schedule(delay, [address, done, why] {
      done(fail(StatusCode::kUnavailable, "cannot reach " + address.to_string() + ": " + why));
    }, this);
  };
  const Nanoseconds latency = world_.between(world_.plan().message_latency_min, world_.plan().message_latency_max);
  if (world_.random().chance(world_.plan().dial_failure_chance)) {
    refuse(std::min(timeout, 2 * latency), "connection reset");
    return;
  }
  const Nanoseconds dialled_at = world_.now();
  const uint64_t dialler = incarnation_;
  // The acceptor's turn comes on its own executor; until then the listener may have gone.
  auto arrive = [this, address, timeout, done, refuse, dialled_at, dialler,
                 events = std::move(events)]() mutable {
    if (!alive_ || incarnation_ != dialler) return;
    const auto place = world_.listeners_.find(address.to_string());
    if (place == world_.listeners_.end()) {
      refuse(1, "connection refused");
      return;
    }
    const std::shared_ptr<ListenerState> listener = place->second;
    if (world_.is_cut(*this, *listener->process)) {
      refuse(std::max<Nanoseconds>(dialled_at + timeout - world_.now(), 1), "timed out");
      return;
    }
    auto link = std::make_shared<Link>(world_, *this, *listener->process);
    world_.links_.push_back(link);
    link->set_events(0, std::move(events));
    link->open(1, [link, listener] {
      auto channel = std::make_shared<SimChannel>(link, Link::Side{1});
      if (listener->accept) link->set_events(1, listener->accept(std::move(channel)));
    });
    link->open(0, [link, done] { done(std::shared_ptr<Channel>(std::make_shared<SimChannel>(link, Link::Side{0}))); });
  };
  world_.schedule(latency, std::move(arrive));
}

}  // namespace skua::sim

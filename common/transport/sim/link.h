#pragma once
// Link is one simulated control connection, as both ends share it.
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "common/control/channel.h"
#include "common/transport/sim/world.h"

namespace skua::sim {

struct ListenerState {
  SimProcess* process = nullptr;
  NetAddress address;
  AcceptFunction accept;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  using Side = size_t;  // 0: who dialled, 1: who accepted

  Link(SimWorld& world, SimProcess& dialler, SimProcess& acceptor);

  void set_events(Side side, ChannelEvents events);
  // Tells an end of its open channel; what the other has sent comes behind it.
  void open(Side side, std::function<void()> opened);
  void send(Side from, const control::Envelope& envelope);
  void close(Side side);
  void break_off(const std::string& why);
  void end_of(const SimProcess& process, bool silent);
  void forget_events();  // the world ends

  bool joins(const SimProcess& a, const SimProcess& b) const;
  void deliver_what_waits();
  std::string peer_of(Side side) const;

 private:
  struct Item {
    std::function<void()> opened;
    std::optional<control::Envelope> envelope;
    std::optional<Status> closed;
  };
  struct End {
    SimProcess* process = nullptr;
    uint64_t incarnation = 0;
    bool open = true;
    ChannelEvents events;
    std::deque<Item> inbox;
    Nanoseconds last_delivery = 0;
  };

  bool usable(const End& end) const;
  void push(Side to, Item item, Nanoseconds delay);
  void deliver(Side to);
  void trace(std::string_view what, Side side, uint64_t bytes, uint64_t content);

  SimWorld& world_;
  uint32_t id_;
  uint64_t messages_ = 0;
  std::array<End, 2> ends_;
};

class SimChannel final : public Channel {
 public:
  SimChannel(std::shared_ptr<Link> link, Link::Side side) : link_(std::move(link)), side_(side) {}
  ~SimChannel() override { link_->close(side_); }
  void send(const control::Envelope& envelope) override { link_->send(side_, envelope); }
  void close() override { link_->close(side_); }
  std::string peer() const override { return link_->peer_of(side_); }

 private:
  std::shared_ptr<Link> link_;
  Link::Side side_;
};

}  // namespace skua::sim

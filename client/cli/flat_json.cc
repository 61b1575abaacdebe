#include "client/cli/flat_json.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "client/cli/escape.h"

namespace skua::cli {
namespace {

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    tail(12), tail(6), tail(0);
  }
}

// Reader walks over one line; the first thing it does not understand ends it with a reason.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<JsonMember>> object() {
    std::vector<JsonMember> members;
    if (!take('{')) return stopped("expected '{'");
    if (!take('}')) {
      do {
        auto member = this->member();
        if (!member) return Error(member.error());
        members.push_back(*std::move(member));
      } while (take(','));
      if (!take('}')) return stopped("expected ',' or '}'");
    }
    skip_blanks();
    if (at_ != text_.size()) return stopped("more text behind the object");
    return members;
  }

 private:
  Result<JsonMember> member() {
    JsonMember member;
    auto name = string();
    if (!name) return Error(name.error());
    member.name = *std::move(name);
    if (!take(':')) return stopped("expected ':'");
    skip_blanks();
    member.is_number = at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
    if (member.is_number) {
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') member.text += text_[at_++];
      return member;
    }
    auto text = string();
    if (!text) return Error(text.error());
    member.text = *std::move(text);
    return member;
  }

  Result<std::string> string() {
    if (!take('"')) return stopped("expected a string");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') {
        if (!escape_sequence(out)) return stopped("no such escape in JSON");
        continue;
      }
      const size_t length = utf8_character_bytes(text_.substr(at_));
      if (length == 0) return stopped("not UTF-8; bytes go into a member whose name ends in _base64");
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return stopped("a control character has to be escaped");
      out += text_.substr(at_, length);
      at_ += length;
    }
    if (at_ == text_.size()) return stopped("the string does not end");
    ++at_;
    return out;
  }

  bool escape_sequence(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    if (at_ + 1 >= text_.size()) return false;
    const char kind = text_[at_ + 1];
    if (const size_t index = kNames.find(kind); index != std::string_view::npos) {
      out += kMeant[index];
      at_ += 2;
      return true;
    }
    auto code = unicode_escape();
    if (!code) return false;
    if (*code >= 0xd800 && *code < 0xdc00) {  // the first half of a pair
      const auto second = unicode_escape();
      if (!second || *second < 0xdc00 || *second > 0xdfff) return false;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*second - 0xdc00);
    } else if (*code >= 0xdc00 && *code <= 0xdfff) {
      return false;
    }
    append_utf8(out, *code);
    return true;
  }

  // \uXXXX at the current place; moves behind it.
  std::optional<uint32_t> unicode_escape() {
    if (text_.substr(at_, 2) != "\\u" || at_ + 6 > text_.size()) return std::nullopt;
    const auto bytes = hex_decode(text_.substr(at_ + 2, 4));
    if (!bytes) return std::nullopt;
    at_ += 6;
    return (static_cast<uint32_t>(static_cast<unsigned char>((*bytes)[0])) << 8) |
           static_cast<unsigned char>((*bytes)[1]);
  }

  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  Error stopped(std::string_view why) const {
    return fail(StatusCode::kInvalidArgument, "at byte " + std::to_string(at_) + ": " + std::string(why));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<JsonMember>> parse_flat_json(std::string_view line) { return Reader(line).object(); }

}  // namespace skua::cli

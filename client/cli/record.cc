#include "client/cli/record.h"

#include <charconv>
#include <utility>

#include "client/cli/escape.h"
#include "client/cli/flat_json.h"
#include "proto/limits.h"

namespace skua::cli {
namespace {

Error refuse(std::string message) { return fail(StatusCode::kInvalidArgument, std::move(message)); }

Result<uint64_t> parse_ttl(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) {
    return refuse("time to live '" + std::string(text) + "' is not a number of milliseconds from 1 on");
  }
  return value;
}

Result<Record> checked(Record record) {
  if (record.key.empty()) return refuse("the key is empty");
  if (record.key.size() > proto::kMaxKeyBytes) {
    return refuse("the key has " + std::to_string(record.key.size()) + " bytes, at most " +
                  std::to_string(proto::kMaxKeyBytes) + " are possible");
  }
  if (record.value.size() > proto::kMaxValueBytes) {
    return refuse("the value has " + std::to_string(record.value.size()) + " bytes, at most " +
                  std::to_string(proto::kMaxValueBytes) + " are possible");
  }
  return record;
}

Result<std::string> unescape_field(std::string_view name, std::string_view text) {
  auto bytes = unescape(text);
  if (!bytes) return refuse(std::string(name) + ", " + bytes.error().message());
  return bytes;
}

Result<Record> parse_tsv(std::string_view line) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos) return refuse("no tab between key and value");
  const std::string_view rest = line.substr(tab + 1);
  const size_t second = rest.find('\t');
  Record record;
  auto key = unescape_field("key", line.substr(0, tab));
  if (!key) return Error(key.error());
  record.key = *std::move(key);
  auto value = unescape_field("value", rest.substr(0, second));
  if (!value) return Error(value.error());
  record.value = *std::move(value);
  if (second != std::string_view::npos) {
    const auto ttl = parse_ttl(rest.substr(second + 1));
    if (!ttl) return Error(ttl.error());
    record.ttl_ms = *ttl;
  }
  return checked(std::move(record));
}

Result<Record> parse_json_line(std::string_view line) {
  auto members = parse_flat_json(line);
  if (!members) return Error(members.error());
  std::optional<std::string> key;
  std::optional<std::string> value;
  Record record;
  for (JsonMember& member : *members) {
    const bool base64 = member.name.ends_with("_base64");
    const std::string_view name = std::string_view(member.name).substr(0, member.name.size() - (base64 ? 7 : 0));
    if (name == "ttl_ms" && !base64 && member.is_number) {
      const auto ttl = parse_ttl(member.text);
      if (!ttl) return Error(ttl.error());
      record.ttl_ms = *ttl;
      continue;
    }
    if ((name != "key" && name != "value") || member.is_number) {
      return refuse("'" + escape(member.name) +
                    "' is not a string key, key_base64, value or value_base64, or a number ttl_ms");
    }
    std::optional<std::string>& target = name == "key" ? key : value;
    if (target) return refuse("'" + std::string(name) + "' is there twice");
    target = std::move(member.text);
    if (base64) {
      auto bytes = base64_decode(*target);
      if (!bytes) return refuse(member.name + ", " + bytes.error().message());
      target = *std::move(bytes);
    }
  }
  if (!key) return refuse("no \"key\" or \"key_base64\"");
  if (!value) return refuse("no \"value\" or \"value_base64\"");
  record.key = *std::move(key);
  record.value = *std::move(value);
  return checked(std::move(record));
}

}  // namespace

std::optional<RecordFormat> parse_record_format(std::string_view name) {
  if (name == "tsv") return RecordFormat::kTsv;
  if (name == "jsonl") return RecordFormat::kJsonLines;
  return std::nullopt;
}

void append_json_member(std::string& out, std::string_view name, std::string_view bytes) {
  const bool text = is_utf8(bytes);
  out += '"';
  out += name;
  out += text ? "\":" : "_base64\":";
  if (text) {
    append_json_string(out, bytes);
  } else {
    append_json_string(out, base64_encode(bytes));
  }
}

void append_record(std::string& out, RecordFormat format, std::string_view key, std::string_view value,
                   uint64_t ttl_ms) {
  if (format == RecordFormat::kTsv) {
    out += escape(key);
    out += '\t';
    out += escape(value);
    if (ttl_ms != 0) out += '\t' + std::to_string(ttl_ms);
  } else {
    out += '{';
    append_json_member(out, "key", key);
    out += ',';
    append_json_member(out, "value", value);
    if (ttl_ms != 0) out += ",\"ttl_ms\":" + std::to_string(ttl_ms);
    out += '}';
  }
  out += '\n';
}

Result<Record> parse_record(RecordFormat format, std::string_view line) {
  return format == RecordFormat::kTsv ? parse_tsv(line) : parse_json_line(line);
}

}  // namespace skua::cli

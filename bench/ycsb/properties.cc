#include "bench/ycsb/properties.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "bench/ycsb/known_properties.h"

namespace skua::ycsb {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\f'; }

// One logical line: continuation lines joined, comments and blank lines left out.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  bool next(std::string& line, size_t& number) {
    while (!rest_.empty()) {
      std::string_view natural = take();
      skip_blanks(natural);
      number = number_;
      if (natural.empty() || natural.front() == '#' || natural.front() == '!') continue;
      line.assign(natural);
      while (ends_in_odd_backslashes(line)) {
        line.pop_back();
        if (rest_.empty()) break;
        std::string_view more = take();
        skip_blanks(more);
        line.append(more);
      }
      return true;
    }
    return false;
  }

 private:
  std::string_view take() {
    const size_t end = rest_.find_first_of("\r\n");
    std::string_view line = rest_.substr(0, end);
    if (end == std::string_view::npos) {
      rest_ = {};
    } else {
      const bool crlf = rest_[end] == '\r' && end + 1 < rest_.size() && rest_[end + 1] == '\n';
      rest_.remove_prefix(end + (crlf ? 2 : 1));
    }
    ++number_;
    return line;
  }
  static void skip_blanks(std::string_view& line) {
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  }
  static bool ends_in_odd_backslashes(const std::string& line) {
    size_t count = 0;
    while (count < line.size() && line[line.size() - 1 - count] == '\\') ++count;
    return count % 2 == 1;
  }

  std::string_view rest_;
  size_t number_ = 0;
};

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::optional<uint32_t> four_hex_digits(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t code = 0;
  const char* const begin = text.data() + at;
  const auto parsed = std::from_chars(begin, begin + 4, code, 16);
  if (parsed.ec != std::errc() || parsed.ptr != begin + 4) return std::nullopt;
  return code;
}

// Reads what follows "\u" at text[at]; a surrogate pair is one character. Returns how many bytes were taken.
std::optional<size_t> unescape_unicode(std::string_view text, size_t at, std::string& out) {
  const auto first = four_hex_digits(text, at);
  if (!first) return std::nullopt;
  const bool high_surrogate = *first >= 0xd800 && *first < 0xdc00;
  if (high_surrogate && text.substr(at + 4, 2) == "\\u") {
    const auto second = four_hex_digits(text, at + 6);
    if (second && *second >= 0xdc00 && *second < 0xe000) {
      append_utf8(out, 0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00));
      return 10;
    }
  }
  append_utf8(out, *first);
  return 4;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char escaped = text[++i];
    switch (escaped) {
      case 't': out.push_back('\t'); break;
      case 'n': out.push_back('\n'); break;
      case 'r': out.push_back('\r'); break;
      case 'f': out.push_back('\f'); break;
      case 'u': {
        const auto taken = unescape_unicode(text, i + 1, out);
        if (!taken) return std::nullopt;
        i += *taken;
        break;
      }
      default: out.push_back(escaped);
    }
  }
  return out;
}

struct RawPair {
  std::string_view name;
  std::string_view value;
};

RawPair split(std::string_view line) {
  size_t end = 0;
  while (end < line.size() && !is_blank(line[end]) && line[end] != '=' && line[end] != ':') {
    end += line[end] == '\\' ? 2 : 1;
  }
  end = std::min(end, line.size());
  size_t value = end;
  while (value < line.size() && is_blank(line[value])) ++value;
  if (value < line.size() && (line[value] == '=' || line[value] == ':')) {
    ++value;
    while (value < line.size() && is_blank(line[value])) ++value;
  }
  return {line.substr(0, end), line.substr(value)};
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

Result<void> check_is_text(std::string_view text, const std::string& source) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 || byte == '\t' || byte == '\n' || byte == '\r' || byte == '\f') continue;
    return fail(StatusCode::kConfiguration,
                source + " is not a workload file: byte " + std::to_string(byte) + " at offset " + std::to_string(i) +
                    " belongs to no text; give a file of name=value lines such as bench/workloads/workloada");
  }
  return {};
}

}  // namespace

Result<void> Properties::load_file(const std::string& path) {
  const auto unreadable = [&path](int error) {
    return fail(StatusCode::kConfiguration, "workload file " + path + " cannot be read: " + std::strerror(error));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return unreadable(EISDIR);
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(errno);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  SKUA_RETURN_IF_ERROR(check_is_text(text, path));

  Properties loaded;
  SKUA_RETURN_IF_ERROR(loaded.load_text(text, path));
  bool any_known = false;
  for (const auto& [name, entry] : loaded.entries_) any_known = any_known || find_known_property(name) != nullptr;
  if (!any_known) {
    return fail(StatusCode::kConfiguration,
                path + " is not a workload file: it sets no property that YCSB or Skua knows (recordcount, "
                       "readproportion, ...); see bench/workloads/workloada");
  }
  merge(loaded);
  return {};
}

Result<void> Properties::load_text(std::string_view text, const std::string& source) {
  Properties loaded;
  LineReader reader(text);
  std::string line;
  size_t number = 0;
  while (reader.next(line, number)) {
    const RawPair raw = split(line);
    auto name = unescape(raw.name);
    auto value = unescape(raw.value);
    const std::string place = source + ":" + std::to_string(number);
    if (!name || !value) {
      return fail(StatusCode::kConfiguration, place + ": \\u needs four hexadecimal digits: " + line);
    }
    loaded.set(*name, *value, place);
  }
  merge(loaded);
  return {};
}

void Properties::set(const std::string& name, std::string value, std::string source) {
  entries_.insert_or_assign(name, Entry{std::move(value), std::move(source)});
}

void Properties::merge(const Properties& other) {
  for (const auto& [name, entry] : other.entries_) entries_.insert_or_assign(name, entry);
}

std::string Properties::text(const std::string& name, std::string_view default_value) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? std::string(default_value) : trimmed(found->second.value);
}

Error Properties::refuse(const std::string& name, std::string_view problem) const {
  std::string message = "property " + name;
  const auto found = entries_.find(name);
  if (found != entries_.end()) message += "=" + found->second.value + " (" + found->second.source + ")";
  message += ": ";
  message += problem;
  return fail(StatusCode::kConfiguration, std::move(message));
}

Result<bool> Properties::boolean(const std::string& name, bool default_value) const {
  if (!has(name)) return default_value;
  const std::string value = text(name, "");
  if (value == "true" || value == "True" || value == "TRUE") return true;
  if (value == "false" || value == "False" || value == "FALSE") return false;
  return refuse(name, "must be true or false");
}

Result<uint64_t> Properties::integer(const std::string& name, uint64_t default_value, uint64_t least) const {
  if (!has(name)) return default_value;
  const std::string value = text(name, "");
  uint64_t number = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() && !value.empty();
  if (!whole || number > static_cast<uint64_t>(INT64_MAX)) return refuse(name, "must be a whole number");
  if (number < least) return refuse(name, "must be at least " + std::to_string(least));
  return number;
}

Result<double> Properties::real(const std::string& name, double default_value, Range range) const {
  if (!has(name)) return default_value;
  const std::string value = text(name, "");
  double number = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() && !value.empty();
  if (!whole || !std::isfinite(number)) return refuse(name, "must be a number such as 0.95");
  if (number < range.least || number > range.most) {
    return refuse(name, "must lie between " + std::to_string(range.least) + " and " + std::to_string(range.most));
  }
  return number;
}

}  // namespace skua::ycsb

#pragma once
// Properties are a workload's settings: name and value, from files in Java's .properties syntax and from flags.
//
// Syntax:  `name=value`, `name: value`, `name value`; `#` and `!` begin comment lines; a line that ends in an odd
//          number of backslashes goes on in the next one; \t \n \r \f, \uXXXX and \<any character> in names and
//          values. Bytes outside ASCII are kept as they are.
// Errors:  kConfiguration, naming the file or flag, the property, its value and what would be accepted.
// Threads: one at a time.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace skua::ycsb {

class Properties {
 public:
  struct Entry {
    std::string value;
    std::string source;  // "workloads/workloada:12", "-p"
  };

  // Later settings of a name replace earlier ones. Unchanged on failure.
  // Error: the file cannot be read, holds bytes that no text has, or holds no property that YCSB or Skua knows.
  Result<void> load_file(const std::string& path);
  Result<void> load_text(std::string_view text, const std::string& source);
  void set(const std::string& name, std::string value, std::string source);
  void merge(const Properties& other);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }

  std::string text(const std::string& name, std::string_view default_value) const;
  Result<bool> boolean(const std::string& name, bool default_value) const;
  // A whole number of at least `least`, at most 2^63 - 1.
  Result<uint64_t> integer(const std::string& name, uint64_t default_value, uint64_t least = 0) const;
  struct Range {
    double least = 0;
    double most = 0;
  };
  Result<double> real(const std::string& name, double default_value, Range range) const;

  // "property recordcount=12x (workloads/workloada:3): " + problem.
  Error refuse(const std::string& name, std::string_view problem) const;

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace skua::ycsb

#pragma once
// The properties that YCSB and Skua know, so that a misspelled one does not pass in silence.
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace skua::ycsb {

class Properties;

enum class PropertyUse {
  kUsed,
  kIgnored,      // belongs to YCSB, but has no effect on a key-value store or on this program's output
  kUnsupported,  // YCSB would act on it and this program cannot: refused, unless it has its harmless value
};

struct KnownProperty {
  std::string_view name;
  PropertyUse use = PropertyUse::kUsed;
  std::string_view harmless_value = {};
  std::string_view instead = {};  // what to do instead of an unsupported one
};

const KnownProperty* find_known_property(std::string_view name);
// The known name with the fewest edits from `name`.
std::string_view nearest_known_property(std::string_view name);

// Returns a warning for each unknown name. Error: kConfiguration for an unsupported one.
Result<std::vector<std::string>> check_property_names(const Properties& properties);

}  // namespace skua::ycsb

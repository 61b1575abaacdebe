#include "bench/ycsb/known_properties.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "bench/ycsb/properties.h"

namespace skua::ycsb {
namespace {

constexpr auto kKnown = std::to_array<KnownProperty>({
    {.name = "workload"},
    {.name = "recordcount"},
    {.name = "operationcount"},
    {.name = "insertstart"},
    {.name = "insertcount"},
    {.name = "fieldcount"},
    {.name = "fieldlength"},
    {.name = "minfieldlength"},
    {.name = "fieldnameprefix"},
    {.name = "fieldlengthdistribution"},
    {.name = "fieldlengthhistogram"},
    {.name = "readallfields"},
    {.name = "writeallfields"},
    {.name = "readproportion"},
    {.name = "updateproportion"},
    {.name = "insertproportion"},
    {.name = "scanproportion"},
    {.name = "readmodifywriteproportion"},
    {.name = "requestdistribution"},
    {.name = "hotspotdatafraction"},
    {.name = "hotspotopnfraction"},
    {.name = "exponential.percentile"},
    {.name = "exponential.frac"},
    {.name = "insertorder"},
    {.name = "zeropadding"},
    {.name = "keyprefix"},
    {.name = "dataintegrity"},
    {.name = "core_workload_insertion_retry_limit"},
    {.name = "core_workload_insertion_retry_interval"},
    {.name = "threadcount"},
    {.name = "target"},
    {.name = "maxexecutiontime"},
    {.name = "status.interval"},
    {.name = "spin.sleep"},
    {.name = "label"},
    {.name = "exporter"},
    {.name = "exportfile"},
    {.name = "measurementtype"},
    {.name = "measurement.interval"},
    {.name = "measurement.histogram.verbose"},
    {.name = "hdrhistogram.percentiles"},
    {.name = "histogram.buckets"},
    {.name = "reportlatencyforeacherror"},
    {.name = "latencytrackederrors"},
    {.name = "skua.fieldupdate"},
    {.name = "skua.keyhash"},
    {.name = "table", .use = PropertyUse::kIgnored},
    {.name = "columnfamily", .use = PropertyUse::kIgnored},
    {.name = "db", .use = PropertyUse::kIgnored},
    {.name = "dotransactions", .use = PropertyUse::kIgnored},
    {.name = "readallfieldsbyname", .use = PropertyUse::kIgnored},
    {.name = "minscanlength", .use = PropertyUse::kIgnored},
    {.name = "maxscanlength", .use = PropertyUse::kIgnored},
    {.name = "scanlengthdistribution", .use = PropertyUse::kIgnored},
    {.name = "keylengthdistribution", .use = PropertyUse::kIgnored},
    {.name = "timeseries.granularity", .use = PropertyUse::kIgnored},
    {.name = "measurement.raw.output_file", .use = PropertyUse::kIgnored},
    {.name = "hdrhistogram.output.path", .use = PropertyUse::kIgnored},
    {.name = "hdrhistogram.fileoutput", .use = PropertyUse::kUnsupported, .harmless_value = "false",
     .instead = "leave it out; -p exporter=json -p measurement.histogram.verbose=true exports every bucket"},
    {.name = "measurement.trackjvm", .use = PropertyUse::kUnsupported, .harmless_value = "false",
     .instead = "leave it out: there is no Java machine here; [SERVER n], CpuMs tells what the servers used"},
});

size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

const KnownProperty* find_known_property(std::string_view name) {
  const auto* const found =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownProperty& known) { return known.name == name; });
  return found == kKnown.end() ? nullptr : found;
}

std::string_view nearest_known_property(std::string_view name) {
  const auto* const nearest =
      std::min_element(kKnown.begin(), kKnown.end(), [&](const KnownProperty& a, const KnownProperty& b) {
        return edit_distance(name, a.name) < edit_distance(name, b.name);
      });
  return nearest->name;
}

Result<std::vector<std::string>> check_property_names(const Properties& properties) {
  std::vector<std::string> warnings;
  for (const auto& [name, entry] : properties.entries()) {
    const KnownProperty* const known = find_known_property(name);
    if (known == nullptr) {
      warnings.push_back("property " + name + " (" + entry.source + ") is unknown and has no effect; did you mean " +
                         std::string(nearest_known_property(name)) + "?");
    } else if (known->use == PropertyUse::kUnsupported && properties.text(name, "") != known->harmless_value) {
      return properties.refuse(name, "is not supported; " + std::string(known->instead));
    }
  }
  return warnings;
}

}  // namespace skua::ycsb

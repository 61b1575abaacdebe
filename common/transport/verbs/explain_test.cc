#include "common/transport/verbs/explain.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace skua {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RegistrationFacts facts() {
  RegistrationFacts made;
  made.error = ENOMEM;
  made.device = "mlx5_0";
  made.bytes = uint64_t{1} << 30;
  made.memlock_bytes = uint64_t{64} << 10;
  return made;
}

TEST(ExplainRegistration, LimitThatIsTooSmallIsNamedWithEveryWayToRaiseIt) {
  const Status why = explain_registration(facts());
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"mlx5_0", "1048576 KiB", "RLIMIT_MEMLOCK is 64 KiB", "ulimit -l", "limits.conf",
                           "LimitMEMLOCK", "--ulimit memlock=-1", "ENOMEM"}) {
    EXPECT_THAT(why.message(), HasSubstr(part));
  }
}

TEST(ExplainRegistration, LimitThatOthersUsedUpCountsAsTooSmall) {
  RegistrationFacts used = facts();
  used.memlock_bytes = uint64_t{2} << 30;
  EXPECT_THAT(explain_registration(used).message(), HasSubstr("limit is not the cause"));
  used.pinned_bytes = (uint64_t{1} << 30) + 1;
  EXPECT_THAT(explain_registration(used).message(), HasSubstr("RLIMIT_MEMLOCK is 2097152 KiB"));
}

TEST(ExplainRegistration, OtherCausesAreNotBlamedOnTheLimit) {
  RegistrationFacts unlimited = facts();
  unlimited.memlock_bytes = UINT64_MAX;
  EXPECT_THAT(explain_registration(unlimited).message(), HasSubstr("vm.max_map_count"));
  RegistrationFacts privileged = facts();
  privileged.may_exceed_memlock = true;
  EXPECT_THAT(explain_registration(privileged).message(), Not(HasSubstr("RLIMIT_MEMLOCK")));
  privileged.max_region_bytes = uint64_t{1} << 20;
  EXPECT_THAT(explain_registration(privileged).message(), HasSubstr("registers at most 1024 KiB"));
  RegistrationFacts fault = facts();
  fault.error = EFAULT;
  EXPECT_THAT(explain_registration(fault).message(), Not(HasSubstr("RLIMIT_MEMLOCK")));
  fault.error = EACCES;
  EXPECT_EQ(explain_registration(fault).code(), StatusCode::kPermissionDenied);
}

TEST(ExplainDevice, EachCauseHasItsRemedy) {
  EXPECT_THAT(explain_no_device(0).message(), HasSubstr("this host has none"));
  EXPECT_THAT(explain_no_device(ENOSYS).message(), HasSubstr("modprobe"));
  EXPECT_EQ(explain_no_device(EACCES).code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(explain_no_device(EACCES).message(), HasSubstr("/dev/infiniband"));
  EXPECT_THAT(explain_open("mlx5_0", EPERM).message(), HasSubstr("uverbs"));
}

}  // namespace
}  // namespace skua

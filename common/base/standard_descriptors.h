#pragma once
// A program may be started with descriptors 0, 1 or 2 closed. The next file that it opens would take that number, and
// what is printed would go there.

namespace skua {

// Opens /dev/null in the place of those that are closed, so that reading from 0 and writing to 1 and 2 fail as before.
// First thing in a main.
void reserve_standard_descriptors();

}  // namespace skua

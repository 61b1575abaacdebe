#pragma once
// Access to memory that other threads, processes or a network device change at the same time.
//
// copy_from_remote and copy_to_remote keep aligned 8-byte words whole (each word is one load or one store) and promise
// no order between words: a copy may be torn, and whoever reads it has a checksum or a word to compare. They are
// relaxed; order comes from the word operations: compare_and_swap_word and fetch_add_word are acquire and release,
// load_word is acquire, store_word is release.
// Under ThreadSanitizer copies go word by word through atomics, so that what is a race by design is not reported,
// and what is not designed still is.
// Requires: a word's address is a multiple of 8. Slot words are touched through the word operations alone.
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace skua {

static_assert(std::endian::native == std::endian::little, "layouts are little-endian");
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

namespace internal {

inline std::atomic_ref<uint64_t> word_at(const std::byte* remote) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(remote)));
}
inline std::atomic_ref<std::byte> byte_at(const std::byte* remote) {
  return std::atomic_ref<std::byte>(*const_cast<std::byte*>(remote));
}

// A copy's remote side, cut where its aligned words begin and end.
struct Cut {
  size_t head;   // bytes before the first aligned word
  size_t words;  // bytes of whole words
  size_t tail;
};
inline Cut cut_at_words(const std::byte* remote, size_t bytes) {
  const size_t to_word = (0 - reinterpret_cast<uintptr_t>(remote)) & 7;
  const size_t head = to_word < bytes ? to_word : bytes;
  const size_t words = (bytes - head) & ~size_t{7};
  return {head, words, bytes - head - words};
}

inline void load_words(std::byte* to, const std::byte* remote, size_t bytes) {
  if constexpr (kThreadSanitizer) {
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = word_at(remote + i).load(std::memory_order_relaxed);
      std::memcpy(to + i, &word, 8);
    }
  } else if (bytes == 8) {
    const uint64_t word = word_at(remote).load(std::memory_order_relaxed);
    std::memcpy(to, &word, 8);
  } else if (bytes != 0) {
    std::memcpy(to, remote, bytes);
  }
}
inline void store_words(std::byte* remote, const std::byte* from, size_t bytes) {
  if constexpr (kThreadSanitizer) {
    for (size_t i = 0; i < bytes; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, from + i, 8);
      word_at(remote + i).store(word, std::memory_order_relaxed);
    }
  } else if (bytes == 8) {
    uint64_t word = 0;
    std::memcpy(&word, from, 8);
    word_at(remote).store(word, std::memory_order_relaxed);
  } else if (bytes != 0) {
    std::memcpy(remote, from, bytes);
  }
}

}  // namespace internal

inline void copy_from_remote(void* to, const std::byte* remote, size_t bytes) {
  auto* local = static_cast<std::byte*>(to);
  const internal::Cut cut = internal::cut_at_words(remote, bytes);
  for (size_t i = 0; i < cut.head; ++i) local[i] = internal::byte_at(remote + i).load(std::memory_order_relaxed);
  internal::load_words(local + cut.head, remote + cut.head, cut.words);
  for (size_t i = bytes - cut.tail; i < bytes; ++i) {
    local[i] = internal::byte_at(remote + i).load(std::memory_order_relaxed);
  }
}

inline void copy_to_remote(std::byte* remote, const void* from, size_t bytes) {
  const auto* local = static_cast<const std::byte*>(from);
  const internal::Cut cut = internal::cut_at_words(remote, bytes);
  for (size_t i = 0; i < cut.head; ++i) internal::byte_at(remote + i).store(local[i], std::memory_order_relaxed);
  internal::store_words(remote + cut.head, local + cut.head, cut.words);
  for (size_t i = bytes - cut.tail; i < bytes; ++i) {
    internal::byte_at(remote + i).store(local[i], std::memory_order_relaxed);
  }
}

inline uint64_t load_word(const std::byte* remote) {
  return internal::word_at(remote).load(std::memory_order_acquire);
}
inline void store_word(std::byte* remote, uint64_t value) {
  internal::word_at(remote).store(value, std::memory_order_release);
}
struct WordSwap {
  uint64_t compare;
  uint64_t swap;
};
// Returns the value found; it was replaced if that equals `compare`.
inline uint64_t compare_and_swap_word(std::byte* remote, WordSwap words) {
  uint64_t found = words.compare;
  internal::word_at(remote).compare_exchange_strong(found, words.swap, std::memory_order_acq_rel,
                                                    std::memory_order_acquire);
  return found;
}
// Returns the value before.
inline uint64_t fetch_add_word(std::byte* remote, uint64_t add) {
  return internal::word_at(remote).fetch_add(add, std::memory_order_acq_rel);
}

}  // namespace skua

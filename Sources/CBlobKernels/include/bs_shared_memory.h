// Memory that processes share: the words of a mapped file, and locks on ranges of a file's bytes.
#ifndef BS_SHARED_MEMORY_H
#define BS_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Maps the first byte_count bytes of a file, shared with every process. Returns 0 or the negative errno.
ssize_t bs_map(int fd, size_t byte_count, uint64_t **words);
void bs_unmap(uint64_t *words, size_t byte_count);

// Sees what the thread that stored the value did before.
static inline uint64_t bs_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void bs_store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
// Stores, and orders the store before every later load of this thread.
static inline void bs_store_first(uint64_t *word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
// Adds, and orders that before every later load of this thread.
static inline uint64_t bs_add(uint64_t *word, uint64_t value) {
  uint64_t sum = __atomic_add_fetch(word, value, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return sum;
}

// Milliseconds since some moment in the past, by a clock that is read without a system call.
uint64_t bs_coarse_milliseconds(void);

// Locks bytes of a file against every other open file. The lock ends with the open file. Returns 1 when it is held
// now, 0 when another holds it and wait is 0, or the negative errno. A lock of the same open file is no obstacle.
ssize_t bs_lock_range(int fd, int64_t offset, int64_t byte_count, int wait);
// The same with a lock that others may share.
ssize_t bs_share_range(int fd, int64_t offset, int64_t byte_count);
// Ends the lock that this process has by F_SETLK, through whichever descriptor.
ssize_t bs_end_process_lock(int fd, int64_t offset, int64_t byte_count);
ssize_t bs_unlock_range(int fd, int64_t offset, int64_t byte_count);

#endif

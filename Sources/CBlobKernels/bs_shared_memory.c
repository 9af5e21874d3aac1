// Shared memory and range locks for Linux and macOS.
#define _GNU_SOURCE

#include "bs_shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__APPLE__) && !defined(F_OFD_SETLK)
// The kernel has had these since macOS 10.11, but the headers of some SDKs do not name them.
#define F_OFD_SETLK 90
#define F_OFD_SETLKW 91
#endif

ssize_t bs_map(int fd, size_t byte_count, uint64_t **words) {
  void *memory = mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return -(ssize_t)errno;
  *words = memory;
  return 0;
}

void bs_unmap(uint64_t *words, size_t byte_count) { munmap(words, byte_count); }

uint64_t bs_coarse_milliseconds(void) {
  struct timespec now;
#if defined(CLOCK_MONOTONIC_COARSE)
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

// Locks of the open file, not of the process: closing another descriptor of the file does not end them.
static ssize_t lock(int fd, short type, int64_t offset, int64_t byte_count, int wait) {
  struct flock range = {
    .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)byte_count};
  if (fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range) == 0) return 1;
  return errno == EAGAIN || errno == EACCES ? 0 : -(ssize_t)errno;
}

ssize_t bs_lock_range(int fd, int64_t offset, int64_t byte_count, int wait) {
  return lock(fd, F_WRLCK, offset, byte_count, wait);
}

ssize_t bs_share_range(int fd, int64_t offset, int64_t byte_count) {
  return lock(fd, F_RDLCK, offset, byte_count, 0);
}

ssize_t bs_end_process_lock(int fd, int64_t offset, int64_t byte_count) {
  struct flock range = {
    .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)byte_count};
  return fcntl(fd, F_SETLK, &range) == 0 ? 0 : -(ssize_t)errno;
}

ssize_t bs_unlock_range(int fd, int64_t offset, int64_t byte_count) {
  ssize_t outcome = lock(fd, F_UNLCK, offset, byte_count, 0);
  return outcome < 0 ? outcome : 0;
}

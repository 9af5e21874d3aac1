#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "bs_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/sysctl.h>
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#elif defined(__linux__)
#include <sys/syscall.h>
#include <sys/vfs.h>
#endif

static ssize_t result(ssize_t value) { return value < 0 ? -(ssize_t)errno : value; }

int bs_working_directory(void) { return AT_FDCWD; }

// The status of the folder that holds what path names.
static int parent_status(int directory, const char *path, struct stat *status) {
  const char *last = strrchr(path, '/');
  size_t length = last ? (size_t)(last - path) : 0;
  char parent[4096];
  if (length >= sizeof parent) return -1;
  memcpy(parent, path, length);
  parent[length] = 0;
  return fstatat(directory, length ? parent : last ? "/" : ".", status, 0);
}

ssize_t bs_share_owner_at(int directory, const char *path) {
  struct stat owner;
  if (geteuid() != 0) return 0;
  if (parent_status(directory, path, &owner) < 0) return -(ssize_t)errno;
  if (owner.st_uid == 0) return 0;
  return result(fchownat(directory, path, owner.st_uid, owner.st_gid, AT_SYMLINK_NOFOLLOW));
}

// Descriptors 0 to 2 belong to the program, also while it has closed them: what it then writes to its standard error
// would go into a file of the store.
enum { FIRST_OWN = 3 };

// Moves a descriptor above the standard ones.
static int raised(int fd) {
  if (fd < 0 || fd >= FIRST_OWN) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN);
  int reason = errno;
  close(fd);
  errno = reason;
  return moved;
}

static pthread_mutex_t occupation = PTHREAD_MUTEX_INITIALIZER;
static unsigned occupier_count;
static int is_occupied[FIRST_OWN];

// Descriptors like these fail every read and write, as closed ones do, and nobody else has any.
#if defined(O_PATH)
#define PLACEHOLDER (O_PATH | O_CLOEXEC)
static int is_placeholder(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_PATH);
}
#else
#define PLACEHOLDER (O_RDONLY | O_CLOEXEC)
static int is_placeholder(int fd) { return fcntl(fd, F_GETFL) >= 0; }
#endif

void bs_occupy_standard(void) {
  pthread_mutex_lock(&occupation);
  occupier_count++;
  for (int number = 0; number < FIRST_OWN; number++) {
    if (fcntl(number, F_GETFD) >= 0) continue;
    // The system gives the lowest free number.
    int fd = open("/", PLACEHOLDER);
    if (fd == number) is_occupied[number] = 1;
    else if (fd >= 0) close(fd);
  }
  pthread_mutex_unlock(&occupation);
}

void bs_release_standard(void) {
  pthread_mutex_lock(&occupation);
  if (--occupier_count == 0) {
    for (int number = 0; number < FIRST_OWN; number++) {
      // The program may have put a descriptor of its own there meanwhile.
      if (is_occupied[number] && is_placeholder(number)) close(number);
      is_occupied[number] = 0;
    }
  }
  pthread_mutex_unlock(&occupation);
}

ssize_t bs_close_on_exec(int fd) { return result(fcntl(fd, F_SETFD, FD_CLOEXEC)); }

static int open_file(int directory, const char *path, int options) {
  int flags = O_CLOEXEC;
  flags |= (options & BS_OPEN_WRITE) ? O_RDWR : O_RDONLY;
  if (options & BS_OPEN_CREATE) flags |= O_CREAT;
  if (options & BS_OPEN_EXCLUSIVE) flags |= O_EXCL;
  if (options & BS_OPEN_DIRECTORY) flags |= O_DIRECTORY;
  if (options & BS_OPEN_NONBLOCK) flags |= O_NONBLOCK;
  if (options & BS_OPEN_APPEND) flags |= O_APPEND;
  if (!(options & BS_OPEN_FOLLOW)) flags |= O_NOFOLLOW;
  if ((options & BS_OPEN_SHARE_OWNER) && geteuid() == 0) {
    // Only what this call creates is given away: what is there may be a link to anything.
    int fd = openat(directory, path, flags | O_EXCL, 0600);
    struct stat owner;
    if (fd >= 0 && parent_status(directory, path, &owner) == 0 && owner.st_uid != 0) {
      // Where it cannot be given away, it stays root's.
      if (fchown(fd, owner.st_uid, owner.st_gid) < 0) errno = 0;
    }
    if (fd >= 0 || errno != EEXIST || (options & BS_OPEN_EXCLUSIVE)) return fd;
  }
  return openat(directory, path, flags, 0600);
}

ssize_t bs_open_at(int directory, const char *path, int options) {
  // Not even for a moment may a file have such a number: another thread could write to it, or take it for the program's.
  bs_occupy_standard();
  ssize_t outcome = result(raised(open_file(directory, path, options)));
  bs_release_standard();
  return outcome;
}

ssize_t bs_close(int fd) { return result(close(fd)); }

ssize_t bs_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -(ssize_t)errno;
  return limit.rlim_cur > INT32_MAX ? INT32_MAX : (ssize_t)limit.rlim_cur;
}

ssize_t bs_duplicate(int fd) { return result(fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN)); }

ssize_t bs_read(int fd, void *bytes, size_t count) {
  ssize_t outcome = result(read(fd, bytes, count));
  if (outcome != -EAGAIN) return outcome;
  struct stat status;
  // A file of /proc that waits for news would wait for ever.
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return outcome;
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  outcome = result(poll(&readable, 1, -1));
  return outcome < 0 ? outcome : -EINTR;
}

ssize_t bs_read_at(int fd, void *bytes, size_t count, int64_t offset) {
  return result(pread(fd, bytes, count, offset));
}

ssize_t bs_read_if_cached(int fd, void *bytes, size_t count, int64_t offset) {
#if defined(__linux__) && defined(RWF_NOWAIT)
  struct iovec vector = {.iov_base = bytes, .iov_len = count};
  return result(preadv2(fd, &vector, 1, offset, RWF_NOWAIT));
#else
  (void)fd, (void)bytes, (void)count, (void)offset;
  return -ENOTSUP;
#endif
}

ssize_t bs_write_at(int fd, const void *bytes, size_t count, int64_t offset) {
  return result(pwrite(fd, bytes, count, offset));
}

ssize_t bs_append(int fd, const void *bytes, size_t count) {
  return result(write(fd, bytes, count));
}

#if defined(__APPLE__)
// fsync on macOS stops at the drive's own cache. File systems that do not know F_FULLFSYNC get fsync.
static ssize_t full_sync(int fd) {
  if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
  if (errno != ENOTSUP && errno != EINVAL && errno != ENOTTY) return -(ssize_t)errno;
  return result(fsync(fd));
}

ssize_t bs_sync_data(int fd) { return full_sync(fd); }

ssize_t bs_sync_all(int fd) { return full_sync(fd); }
#else
ssize_t bs_sync_data(int fd) { return result(fdatasync(fd)); }

ssize_t bs_sync_all(int fd) { return result(fsync(fd)); }
#endif

ssize_t bs_truncate(int fd, int64_t byte_count) { return result(ftruncate(fd, byte_count)); }

#if defined(__APPLE__)
// Reserves blocks for what the first byte_count bytes do not have yet; -1 and errno on failure.
static int preallocate(int fd, int64_t byte_count, struct stat *status) {
  if (fstat(fd, status) < 0) return -1;
  int64_t reserved = (int64_t)status->st_blocks * 512;
  if (byte_count <= reserved) return 0;
  fstore_t store = {
    .fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = byte_count - reserved};
  return fcntl(fd, F_PREALLOCATE, &store) < 0 ? -1 : 0;
}
#endif

ssize_t bs_allocate(int fd, int64_t byte_count) {
#if defined(__APPLE__)
  struct stat status;
  if (preallocate(fd, byte_count, &status) < 0) return -(ssize_t)errno;
  return byte_count > status.st_size ? result(ftruncate(fd, byte_count)) : 0;
#else
  // Where the file system cannot reserve, the C library writes a byte into every block instead.
  return -(ssize_t)posix_fallocate(fd, 0, byte_count);
#endif
}

void bs_begin_writeback(int fd, int64_t offset, int64_t byte_count) {
#if defined(__linux__)
  // Without a flag to wait, the call takes no error away from fdatasync.
  (void)sync_file_range(fd, offset, byte_count, SYNC_FILE_RANGE_WRITE);
#else
  (void)fd, (void)offset, (void)byte_count;
#endif
}

ssize_t bs_reserve(int fd, int64_t byte_count) {
#if defined(__APPLE__)
  struct stat status;
  if (preallocate(fd, byte_count, &status) == 0) return 0;
#elif defined(FALLOC_FL_KEEP_SIZE)
  if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)byte_count) == 0) return 0;
#else
  (void)fd;
  (void)byte_count;
  return 0;
#endif
  // A file system that cannot reserve is not an error: space is then taken as it is written.
  return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == ENOTSUP ? 0 : -(ssize_t)errno;
}

ssize_t bs_write_back(int fd) {
#if defined(__linux__)
  // Not fsync: that would also wait for the journal and flush the disk's cache, for each file.
  unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  return result(sync_file_range(fd, 0, 0, flags));
#else
  return result(fsync(fd));
#endif
}

ssize_t bs_next_data(int fd, int64_t offset) { return result(lseek(fd, offset, SEEK_DATA)); }

ssize_t bs_next_hole(int fd, int64_t offset) { return result(lseek(fd, offset, SEEK_HOLE)); }

void bs_advise_sequential(int fd) {
#if defined(__APPLE__)
  (void)fcntl(fd, F_RDAHEAD, 1);
#else
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
}

static void fill(const struct stat *from, bs_status *to) {
  memset(to, 0, sizeof *to);
  to->device = (uint64_t)from->st_dev;
  to->inode = (uint64_t)from->st_ino;
  to->link_count = (uint64_t)from->st_nlink;
  to->byte_count = (int64_t)from->st_size;
  to->allocated_byte_count = (int64_t)from->st_blocks * 512;
  to->modified_seconds = (int64_t)from->st_mtim.tv_sec;
  to->modified_nanoseconds = (int32_t)from->st_mtim.tv_nsec;
  to->changed_seconds = (int64_t)from->st_ctim.tv_sec;
  to->changed_nanoseconds = (int32_t)from->st_ctim.tv_nsec;
  to->kind = S_ISREG(from->st_mode)   ? BS_KIND_REGULAR
             : S_ISDIR(from->st_mode) ? BS_KIND_DIRECTORY
             : S_ISLNK(from->st_mode) ? BS_KIND_SYMBOLIC_LINK
                                      : BS_KIND_OTHER;
  to->permissions = (uint32_t)(from->st_mode & 07777);
  to->user = (uint32_t)from->st_uid;
  to->group = (uint32_t)from->st_gid;
}

ssize_t bs_available_at(const char *path, int64_t *byte_count) {
#if defined(__APPLE__)
  // The counts of its statvfs have 32 bits, and end at 16 TiB.
  struct statfs raw;
  if (statfs(path, &raw) < 0) return -(ssize_t)errno;
  uint64_t block_byte_count = raw.f_bsize;
#else
  struct statvfs raw;
  if (statvfs(path, &raw) < 0) return -(ssize_t)errno;
  uint64_t block_byte_count = raw.f_frsize;
#endif
  uint64_t product;
  // Also for root: f_bfree counts up to 16 MiB that ext4 keeps for its own metadata and gives to no one.
  int overflows = __builtin_mul_overflow((uint64_t)raw.f_bavail, block_byte_count, &product);
  *byte_count = overflows || product > INT64_MAX ? INT64_MAX : (int64_t)product;
  return 0;
}

ssize_t bs_keeps_change_times_at(int directory, const char *path) {
#if defined(__APPLE__)
  int fd = openat(directory, path, O_RDONLY | O_NONBLOCK | O_SYMLINK | O_CLOEXEC);
#else
  // Opens anything, a link itself included, and needs no permission to read it.
  int fd = openat(directory, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
#endif
  if (fd < 0) return -(ssize_t)errno;
  struct statfs raw;
  ssize_t outcome = result(fstatfs(fd, &raw));
  close(fd);
  if (outcome < 0) return outcome;
#if defined(__APPLE__)
  return strcmp(raw.f_fstypename, "apfs") == 0;
#else
  switch ((unsigned long)raw.f_type) {
    case 0xef53:      // ext2, ext3, ext4
    case 0x58465342:  // XFS
    case 0x9123683e:  // Btrfs
    case 0xf2f52010:  // F2FS
    case 0x2fc12fc1:  // ZFS
      return 1;
    // Not tmpfs: after a page was read through a mapping, stores to it change no time.
    // Not overlays and network file systems: what is below them, or on the server, may be any.
    default: return 0;
  }
#endif
}

ssize_t bs_status_of(int fd, bs_status *status) {
  struct stat raw;
  if (fstat(fd, &raw) < 0) return -(ssize_t)errno;
  fill(&raw, status);
  return 0;
}

ssize_t bs_status_at(int directory, const char *path, bs_status *status) {
  struct stat raw;
  if (fstatat(directory, path, &raw, AT_SYMLINK_NOFOLLOW) < 0) return -(ssize_t)errno;
  fill(&raw, status);
  return 0;
}

ssize_t bs_set_modified(int fd, int64_t seconds, int32_t nanoseconds) {
  struct timespec times[2] = {
    {.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)seconds, .tv_nsec = nanoseconds}};
  return result(futimens(fd, times));
}

ssize_t bs_set_permissions(int fd, uint32_t permissions) {
  return result(fchmod(fd, (mode_t)permissions));
}

ssize_t bs_lock(int fd, int exclusive, int wait) {
  if (flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB)) == 0) return 1;
  return errno == EWOULDBLOCK ? 0 : -(ssize_t)errno;
}

ssize_t bs_unlock(int fd) { return result(flock(fd, LOCK_UN)); }

ssize_t bs_create_directory_at(int directory, const char *path) {
  return result(mkdirat(directory, path, 0700));
}

ssize_t bs_create_sticky_directory_at(int directory, const char *path) {
  int outcome = mkdirat(directory, path, 01700);
#if defined(__APPLE__)
  // This system sets the bit afterwards only.
  if (outcome == 0) (void)fchmodat(directory, path, 01700, AT_SYMLINK_NOFOLLOW);
#endif
  return result(outcome);
}

ssize_t bs_remove_at(int directory, const char *path) { return result(unlinkat(directory, path, 0)); }

ssize_t bs_remove_directory_at(int directory, const char *path) {
  return result(unlinkat(directory, path, AT_REMOVEDIR));
}

ssize_t bs_rename_at(int from_directory, const char *from, int to_directory, const char *to) {
  return result(renameat(from_directory, from, to_directory, to));
}

ssize_t bs_rename_without_replacing_at(
  int from_directory, const char *from, int to_directory, const char *to
) {
#if defined(__APPLE__)
  ssize_t outcome = result(renameatx_np(from_directory, from, to_directory, to, RENAME_EXCL));
#elif defined(SYS_renameat2)
  // RENAME_NOREPLACE is 1; the C library of some distributions has neither the name nor the function.
  ssize_t outcome = result(syscall(SYS_renameat2, from_directory, from, to_directory, to, 1u));
#else
  ssize_t outcome = -ENOSYS;
#endif
  if (outcome != -ENOSYS && outcome != -EINVAL && outcome != -ENOTSUP) return outcome;
  if (linkat(from_directory, from, to_directory, to, 0) < 0) return -(ssize_t)errno;
  return result(unlinkat(from_directory, from, 0));
}

ssize_t bs_directory_open(int fd, void **directory) {
  DIR *stream = fdopendir(fd);
  if (!stream) {
    ssize_t failure = -(ssize_t)errno;
    close(fd);
    return failure;
  }
  // A duplicate of the descriptor may have been read to its end, and shares its place.
  rewinddir(stream);
  *directory = stream;
  return 0;
}

ssize_t bs_directory_next(void *directory, int files_only, const char **name) {
  for (;;) {
    errno = 0;
    struct dirent *entry = readdir(directory);
    if (!entry) return -(ssize_t)errno;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (files_only && entry->d_type != DT_REG) {
      struct stat status;
      if (entry->d_type != DT_UNKNOWN) continue;
      // Some file systems do not tell.
      if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode)) continue;
    }
    *name = entry->d_name;
    return 1;
  }
}

void bs_directory_close(void *directory) { closedir(directory); }

ssize_t bs_boot_identity(char *text, size_t capacity) {
#if defined(__APPLE__)
  size_t length = capacity;
  if (sysctlbyname("kern.bootsessionuuid", text, &length, NULL, 0) < 0) return -(ssize_t)errno;
  while (length && text[length - 1] == 0) length--;
  return (ssize_t)length;
#else
  int fd = (int)bs_open_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 0);
  if (fd < 0) return fd;
  ssize_t length = result(read(fd, text, capacity));
  close(fd);
  while (length > 0 && text[length - 1] == '\n') length--;
  return length;
#endif
}

ssize_t bs_mount_identity(const char *path, char *text, size_t capacity) {
  unsigned long long device, mount = 0;
#if defined(__linux__) && defined(SYS_statx)
  // As the kernel lays it out: headers of older systems lack the last fields.
  struct {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t link_count, user, group;
    uint16_t mode, spare;
    uint64_t inode, byte_count, block_count, attributes_mask, times[8];
    uint32_t special_major, special_minor, device_major, device_minor;
    uint64_t mount, spares[13];
  } raw = {0};
  // The unique number of a mount, since Linux 6.8; before, one that is used again, since 5.8.
  for (uint32_t wanted = 0x4000; wanted >= 0x1000; wanted >>= 2) {
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, wanted, &raw) < 0) return -(ssize_t)errno;
    if (raw.mask & wanted) {
      mount = raw.mount;
      break;
    }
  }
  device = ((unsigned long long)raw.device_major << 32) | raw.device_minor;
#else
  struct stat raw;
  if (lstat(path, &raw) < 0) return -(ssize_t)errno;
  device = (unsigned long long)raw.st_dev;
#endif
  int length = snprintf(text, capacity, "%llx-%llx", device, mount);
  return length > 0 && (size_t)length < capacity ? length : 0;
}

uint64_t bs_milliseconds_since_1970(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) < 0 || now.tv_sec < 0) return 0;
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

size_t bs_length(const char *text) { return strlen(text); }

ssize_t bs_working_directory_path(char *text, size_t capacity) {
  return getcwd(text, capacity) ? (ssize_t)strlen(text) : -(ssize_t)errno;
}

ssize_t bs_real_path(const char *path, char *text, size_t capacity) {
  char *real = realpath(path, NULL);
  if (real == NULL) return -(ssize_t)errno;
  size_t length = strlen(real);
  if (length <= capacity) memcpy(text, real, length);
  free(real);
  return length <= capacity ? (ssize_t)length : -(ssize_t)ENAMETOOLONG;
}

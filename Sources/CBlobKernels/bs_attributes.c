#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "bs_system.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__APPLE__)
#define LINK_FOLDER "/dev/fd"
// This system has the calls of Linux with more parameters: a position, and options.
#define flistxattr(fd, names, capacity) flistxattr(fd, names, capacity, 0)
#define fgetxattr(fd, name, value, capacity) fgetxattr(fd, name, value, capacity, 0, 0)
#define fsetxattr(fd, name, value, count, options) fsetxattr(fd, name, value, count, 0, options)
#define fremovexattr(fd, name) fremovexattr(fd, name, 0)
#define llistxattr(path, names, capacity) listxattr(path, names, capacity, XATTR_NOFOLLOW)
#define lgetxattr(path, name, value, capacity) getxattr(path, name, value, capacity, 0, XATTR_NOFOLLOW)
#define lsetxattr(path, name, value, count, options) setxattr(path, name, value, count, 0, XATTR_NOFOLLOW)
#define lremovexattr(path, name) removexattr(path, name, XATTR_NOFOLLOW)
#else
#define LINK_FOLDER "/proc/self/fd"
#endif

static ssize_t result(ssize_t value) { return value < 0 ? -(ssize_t)errno : value; }

int bs_is_root(void) { return geteuid() == 0; }

ssize_t bs_list_attributes(int fd, char *names, size_t capacity) {
  return result(flistxattr(fd, names, capacity));
}

ssize_t bs_get_attribute(int fd, const char *name, void *value, size_t capacity) {
  return result(fgetxattr(fd, name, value, capacity));
}

ssize_t bs_set_attribute(int fd, const char *name, const void *value, size_t count) {
  return result(fsetxattr(fd, name, value, count, 0));
}

ssize_t bs_remove_attribute(int fd, const char *name) { return result(fremovexattr(fd, name)); }

// The calls for links take a path. It leads through the open folder, so that it stays there whatever is renamed meanwhile.
enum { LINK_PATH_CAPACITY = 4096 + 64 };

static const char *link_path(int directory, const char *name, char *path) {
  int length =
    directory == AT_FDCWD || name[0] == '/'
      ? snprintf(path, LINK_PATH_CAPACITY, "%s", name)
      : snprintf(path, LINK_PATH_CAPACITY, LINK_FOLDER "/%d/%s", directory, name);
  return length > 0 && length < LINK_PATH_CAPACITY ? path : NULL;
}

ssize_t bs_list_link_attributes_at(int directory, const char *name, char *names, size_t capacity) {
  char memory[LINK_PATH_CAPACITY];
  const char *path = link_path(directory, name, memory);
  return path ? result(llistxattr(path, names, capacity)) : -ENAMETOOLONG;
}

ssize_t bs_get_link_attribute_at(
  int directory, const char *name, const char *attribute, void *value, size_t capacity) {
  char memory[LINK_PATH_CAPACITY];
  const char *path = link_path(directory, name, memory);
  return path ? result(lgetxattr(path, attribute, value, capacity)) : -ENAMETOOLONG;
}

ssize_t bs_set_link_attribute_at(
  int directory, const char *name, const char *attribute, const void *value, size_t count) {
  char memory[LINK_PATH_CAPACITY];
  const char *path = link_path(directory, name, memory);
  return path ? result(lsetxattr(path, attribute, value, count, 0)) : -ENAMETOOLONG;
}

ssize_t bs_remove_link_attribute_at(int directory, const char *name, const char *attribute) {
  char memory[LINK_PATH_CAPACITY];
  const char *path = link_path(directory, name, memory);
  return path ? result(lremovexattr(path, attribute)) : -ENAMETOOLONG;
}

ssize_t bs_set_owner(int fd, uint32_t user, uint32_t group) { return result(fchown(fd, user, group)); }

ssize_t bs_set_link_owner_at(int directory, const char *name, uint32_t user, uint32_t group) {
  return result(fchownat(directory, name, user, group, AT_SYMLINK_NOFOLLOW));
}

ssize_t bs_set_link_modified_at(int directory, const char *name, int64_t seconds, int32_t nanoseconds) {
  struct timespec times[2] = {
    {.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)seconds, .tv_nsec = nanoseconds}};
  return result(utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW));
}

ssize_t bs_read_link_at(int directory, const char *name, char *target, size_t capacity) {
  return result(readlinkat(directory, name, target, capacity));
}

ssize_t bs_create_link_at(const char *target, int directory, const char *name) {
  return result(symlinkat(target, directory, name));
}

ssize_t bs_link_at(int from_directory, const char *from, int to_directory, const char *to) {
  return result(linkat(from_directory, from, to_directory, to, 0));
}

// Copies a name that was found, and returns its length.
static ssize_t copy(const char *name, char *text, size_t capacity) {
  size_t length = strlen(name);
  if (length > capacity) return -ERANGE;
  memcpy(text, name, length);
  return (ssize_t)length;
}

// Finds a record of a user or group in as much memory as it takes: that of a group has all its members.
#define LOOK_UP(call)                                                                     \
  char *memory = NULL;                                                                    \
  int failure = ERANGE;                                                                   \
  for (size_t capacity = 1 << 16; failure == ERANGE && capacity <= 1 << 24; capacity *= 4) { \
    free(memory);                                                                         \
    memory = malloc(capacity);                                                            \
    failure = memory ? (call) : ENOMEM;                                                   \
  }

ssize_t bs_user_name(uint32_t user, char *text, size_t byte_count_max) {
  struct passwd record, *found = NULL;
  LOOK_UP(getpwuid_r(user, &record, memory, capacity, &found));
  ssize_t outcome = failure ? -failure : found ? copy(record.pw_name, text, byte_count_max) : 0;
  free(memory);
  return outcome;
}

ssize_t bs_group_name(uint32_t group, char *text, size_t byte_count_max) {
  struct group record, *found = NULL;
  LOOK_UP(getgrgid_r(group, &record, memory, capacity, &found));
  ssize_t outcome = failure ? -failure : found ? copy(record.gr_name, text, byte_count_max) : 0;
  free(memory);
  return outcome;
}

ssize_t bs_user_number(const char *name, uint32_t *user) {
  struct passwd record, *found = NULL;
  LOOK_UP(getpwnam_r(name, &record, memory, capacity, &found));
  if (found) *user = record.pw_uid;
  free(memory);
  return failure ? -failure : found != NULL;
}

ssize_t bs_group_number(const char *name, uint32_t *group) {
  struct group record, *found = NULL;
  LOOK_UP(getgrnam_r(name, &record, memory, capacity, &found));
  if (found) *group = record.gr_gid;
  free(memory);
  return failure ? -failure : found != NULL;
}

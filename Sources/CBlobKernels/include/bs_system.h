// System calls that Swift cannot reach, or that differ between Linux and macOS. Every function returns its
// result, zero or more, or the negative errno: the thread's errno never has to survive a trip through Swift.
// None retries after EINTR; the one loop that does so is in Swift.
#ifndef BS_SYSTEM_H
#define BS_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bs_shared_memory.h"

// What bs_open_at may be asked for; O_CLOEXEC and O_NOFOLLOW are always added. The descriptor is never 0, 1 or 2.
enum {
  BS_OPEN_WRITE = 1,       // read and write; without it, read only
  BS_OPEN_CREATE = 2,      // create when missing, with permissions 0600
  BS_OPEN_EXCLUSIVE = 4,   // refuse what exists
  BS_OPEN_DIRECTORY = 8,   // refuse what is not a directory
  BS_OPEN_NONBLOCK = 16,   // do not wait for the other end of a named pipe
  BS_OPEN_FOLLOW = 32,     // follow a symbolic link in the last place
  BS_OPEN_APPEND = 64,     // what is written goes behind the end
  BS_OPEN_SHARE_OWNER = 128,  // what root creates belongs to the owner of the folder it is in
};

enum { BS_KIND_REGULAR = 0, BS_KIND_DIRECTORY = 1, BS_KIND_SYMBOLIC_LINK = 2, BS_KIND_OTHER = 3 };

typedef struct {
  uint64_t device;
  uint64_t inode;
  uint64_t link_count;
  int64_t byte_count;
  int64_t allocated_byte_count;
  int64_t modified_seconds;
  int64_t changed_seconds;
  int32_t modified_nanoseconds;
  int32_t changed_nanoseconds;
  uint32_t kind;
  uint32_t permissions;
  uint32_t user;
  uint32_t group;
} bs_status;

// The directory descriptor that means "the working directory".
int bs_working_directory(void);

ssize_t bs_open_at(int directory, const char *path, int options);
ssize_t bs_close(int fd);
// How many descriptors the process may have open.
ssize_t bs_descriptor_limit(void);
// Keeps descriptors 0 to 2 from what other libraries open until the same number of calls of bs_release_standard: those
// that are closed get placeholders meanwhile. Any thread may call them.
void bs_occupy_standard(void);
void bs_release_standard(void);
ssize_t bs_close_on_exec(int fd);
// A duplicate above 2 that is closed on exec. It shares the open file description, and with it any flock.
ssize_t bs_duplicate(int fd);

// Of a descriptor that does not block, it waits until there is something to read, and returns -EINTR.
ssize_t bs_read(int fd, void *bytes, size_t count);
ssize_t bs_read_at(int fd, void *bytes, size_t count, int64_t offset);
// Reads what is in the page cache and never waits for the medium; -ENOTSUP where the system has no such call.
ssize_t bs_read_if_cached(int fd, void *bytes, size_t count, int64_t offset);
// Writes behind the end of a file that was opened with BS_OPEN_APPEND.
ssize_t bs_append(int fd, const void *bytes, size_t count);
ssize_t bs_write_at(int fd, const void *bytes, size_t count, int64_t offset);

// Forces the file's bytes, and what is needed to read them back, to the medium (F_FULLFSYNC on macOS).
ssize_t bs_sync_data(int fd);
// Forces everything about the file or directory to the medium (F_FULLFSYNC on macOS).
ssize_t bs_sync_all(int fd);
ssize_t bs_truncate(int fd, int64_t byte_count);
// Reserves blocks for the first byte_count bytes and makes the file at least that long.
ssize_t bs_allocate(int fd, int64_t byte_count);
// Lets the system begin to write those bytes to the medium, waiting for nothing. Advice only: failure is not
// reported here, and is left for the next sync to report.
void bs_begin_writeback(int fd, int64_t offset, int64_t byte_count);
// Reserves blocks for the first byte_count bytes and leaves the length as it is; where the file system cannot, nothing
// happens. Truncating the file to its length gives back what was not used.
ssize_t bs_reserve(int fd, int64_t byte_count);
// Writes back what mappings and writes have left in memory, and waits for it, but for no medium: from then on, the next
// store through a mapping changes the file's times again. Works on a descriptor that is open for reading.
ssize_t bs_write_back(int fd);
// Where data, or a hole, begins at or behind an offset; -ENXIO behind the last data. The end of the file is a hole.
ssize_t bs_next_data(int fd, int64_t offset);
ssize_t bs_next_hole(int fd, int64_t offset);
// Tells the system that the file will be read from front to back. Advice only: failure is not reported.
void bs_advise_sequential(int fd);

// Whether every change of a file's content on that file system changes its change time, in mappings, too: 1 or 0.
ssize_t bs_keeps_change_times_at(int directory, const char *path);
// How many bytes the file system that a path lies on still has room for.
ssize_t bs_available_at(const char *path, int64_t *byte_count);

ssize_t bs_status_of(int fd, bs_status *status);
ssize_t bs_status_at(int directory, const char *path, bs_status *status);
ssize_t bs_set_modified(int fd, int64_t seconds, int32_t nanoseconds);
ssize_t bs_set_permissions(int fd, uint32_t permissions);

// Attributes of files that only imports and exports look at.
int bs_is_root(void);
// The names of extended attributes, each with a zero behind it; with a capacity of 0, how many bytes they take.
ssize_t bs_list_attributes(int fd, char *names, size_t capacity);
ssize_t bs_get_attribute(int fd, const char *name, void *value, size_t capacity);
ssize_t bs_set_attribute(int fd, const char *name, const void *value, size_t count);
ssize_t bs_remove_attribute(int fd, const char *name);
// The same of a symbolic link. On Linux, of one in a folder, they need /proc: -ENOENT without.
ssize_t bs_list_link_attributes_at(int directory, const char *name, char *names, size_t capacity);
ssize_t bs_get_link_attribute_at(
  int directory, const char *name, const char *attribute, void *value, size_t capacity);
ssize_t bs_set_link_attribute_at(
  int directory, const char *name, const char *attribute, const void *value, size_t count);
ssize_t bs_remove_link_attribute_at(int directory, const char *name, const char *attribute);
ssize_t bs_set_owner(int fd, uint32_t user, uint32_t group);
ssize_t bs_set_link_owner_at(int directory, const char *name, uint32_t user, uint32_t group);
ssize_t bs_set_link_modified_at(int directory, const char *name, int64_t seconds, int32_t nanoseconds);
ssize_t bs_read_link_at(int directory, const char *name, char *target, size_t capacity);
ssize_t bs_create_link_at(const char *target, int directory, const char *name);
ssize_t bs_link_at(int from_directory, const char *from, int to_directory, const char *to);
// The name of a user or group, without a zero behind it; 0 if the number has none.
ssize_t bs_user_name(uint32_t user, char *text, size_t capacity);
ssize_t bs_group_name(uint32_t group, char *text, size_t capacity);
// Returns 1 and the number, or 0 if there is no such name.
ssize_t bs_user_number(const char *name, uint32_t *user);
ssize_t bs_group_number(const char *name, uint32_t *group);

// Returns 1 when the lock is held now, 0 when another holds it and wait is 0.
ssize_t bs_lock(int fd, int exclusive, int wait);
ssize_t bs_unlock(int fd);

ssize_t bs_create_directory_at(int directory, const char *path);
// The same with the sticky bit, which changes nothing where only the owner may write.
ssize_t bs_create_sticky_directory_at(int directory, const char *path);
// Gives a file or folder that root has made to the owner of the folder it is in; nothing happens for anybody else.
ssize_t bs_share_owner_at(int directory, const char *path);
ssize_t bs_remove_at(int directory, const char *path);
ssize_t bs_remove_directory_at(int directory, const char *path);
ssize_t bs_rename_at(int from_directory, const char *from, int to_directory, const char *to);
// Renames a file unless the new name is taken: -EEXIST then. Atomic; by link and unlink where the system or the
// file system cannot do it in one step.
ssize_t bs_rename_without_replacing_at(
  int from_directory, const char *from, int to_directory, const char *to);

// Names in a directory. bs_directory_open takes the descriptor over, also when it fails.
ssize_t bs_directory_open(int fd, void **directory);
// Returns 1 and a name that lives until the next call, or 0 at the end. Skips "." and "..", and with `files_only` what the
// file system says is no regular file.
ssize_t bs_directory_next(void *directory, int files_only, const char **name);
void bs_directory_close(void *directory);

// Writes a text without end mark that differs for every start of the machine; returns its length.
ssize_t bs_boot_identity(char *text, size_t capacity);
// Writes a text without end mark that differs once the file system at path was mounted anew; returns its length.
ssize_t bs_mount_identity(const char *path, char *text, size_t capacity);
uint64_t bs_milliseconds_since_1970(void);
size_t bs_length(const char *text);
ssize_t bs_working_directory_path(char *text, size_t capacity);
// The path of what is there, from the root on and without links; -ENAMETOOLONG if it does not fit.
ssize_t bs_real_path(const char *path, char *text, size_t capacity);

#endif

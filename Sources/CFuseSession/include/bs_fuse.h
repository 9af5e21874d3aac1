#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The part of libfuse that this package uses, in forms that Swift can call.
//
// Where libfuse's headers are missing at build time, all this compiles too: `bs_fuse_is_available` is then false, and
// nothing can be mounted.

// A node: what the kernel knows of a file or folder. Node 1 is the root.
struct bs_fuse_entry {
  uint64_t node;
  uint64_t inode;  // what programs see
  uint32_t mode, user, group;
  int64_t byte_count;
  int64_t seconds;  // the time of modification
  int32_t nanoseconds;
  double name_seconds;  // how long the kernel may use the name without asking again
};

struct bs_fuse_list;

// Adds a child to the list that the kernel asked for; false when it has no more room.
bool bs_fuse_add(struct bs_fuse_list *list, const char *name, const struct bs_fuse_entry *entry, int64_t next);

// What libfuse calls, on several threads at once and each with the same context. Each returns 0 or an errno.
struct bs_fuse_calls {
  int (*look_up)(void *context, uint64_t parent, const char *name, struct bs_fuse_entry *entry);
  // Drops references that `look_up`, and `list` with `holds`, have given to the kernel.
  void (*forget)(void *context, uint64_t node, uint64_t count);
  int (*attributes)(void *context, uint64_t node, struct bs_fuse_entry *entry);
  int (*open)(void *context, uint64_t node, uint64_t *handle);
  // Fills the buffer but at the end of the file.
  int (*read)(void *context, uint64_t handle, void *buffer, size_t size, int64_t offset, size_t *count);
  void (*close)(void *context, uint64_t handle);
  int (*open_folder)(void *context, uint64_t node, uint64_t *handle);
  // Lists children from `offset` on; with `holds`, gives the kernel a reference to each.
  int (*list)(void *context, uint64_t handle, int64_t offset, bool holds, struct bs_fuse_list *list);
  void (*close_folder)(void *context, uint64_t handle);
  // These fill the buffer, or with a size of 0 only count.
  int (*read_link)(void *context, uint64_t node, void *buffer, size_t size, size_t *count);
  int (*get_attribute)(
      void *context, uint64_t node, const char *name, void *buffer, size_t size, size_t *count);
  int (*list_attributes)(void *context, uint64_t node, void *buffer, size_t size, size_t *count);
};

struct bs_fuse_session;

bool bs_fuse_is_available(void);

// Mounts. Returns NULL if that fails; then `reason` has what libfuse says about it.
struct bs_fuse_session *bs_fuse_mount(
    const char *folder, const char *options, struct bs_fuse_calls calls, void *context, char *reason,
    size_t reason_size);

// Answers the kernel until the folder is unmounted or `bs_fuse_stop` is called. Returns 0 or a negative errno.
int bs_fuse_run(struct bs_fuse_session *session);

// Has `bs_fuse_run` return; it does so at the next request. Safe on any thread.
void bs_fuse_stop(struct bs_fuse_session *session);

// Unmounts, if that is left to do, and frees the session. Files that are open in other programs fail from then on.
void bs_fuse_end(struct bs_fuse_session *session);

#define _FILE_OFFSET_BITS 64
#include "bs_fuse.h"

#if __has_include(<fuse_lowlevel.h>)
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bs_fuse_session {
  struct bs_fuse_calls calls;
  void *context;
  struct fuse_session *fuse;
};

struct bs_fuse_list {
  fuse_req_t request;
  bool holds;
  size_t size, used;
  char *bytes;
};

// A node's attributes never change: a new version is a new node.
static const double forever = 1e9;
static _Thread_local char last_message[256];

static void keep_message(enum fuse_log_level level, const char *format, va_list arguments) {
  if (level <= FUSE_LOG_ERR) vsnprintf(last_message, sizeof last_message, format, arguments);
}

static struct fuse_entry_param parameters(const struct bs_fuse_entry *entry) {
  struct fuse_entry_param result = {.ino = entry->node, .attr_timeout = forever, .entry_timeout = entry->name_seconds};
  result.attr.st_ino = entry->inode;
  result.attr.st_mode = entry->mode;
  result.attr.st_nlink = 1;
  result.attr.st_uid = entry->user;
  result.attr.st_gid = entry->group;
  result.attr.st_size = entry->byte_count;
  result.attr.st_blocks = entry->byte_count / 512 + (entry->byte_count % 512 != 0);
  result.attr.st_blksize = 1 << 17;
  result.attr.st_mtim.tv_sec = entry->seconds;
  result.attr.st_mtim.tv_nsec = entry->nanoseconds;
  result.attr.st_atim = result.attr.st_ctim = result.attr.st_mtim;
  return result;
}

bool bs_fuse_add(struct bs_fuse_list *list, const char *name, const struct bs_fuse_entry *entry, int64_t next) {
  struct fuse_entry_param entry_parameters = parameters(entry);
  char *target = list->bytes + list->used;
  size_t room = list->size - list->used;
  size_t size = list->holds
                    ? fuse_add_direntry_plus(list->request, target, room, name, &entry_parameters, next)
                    : fuse_add_direntry(list->request, target, room, name, &entry_parameters.attr, next);
  if (size > room) return false;
  list->used += size;
  return true;
}

static void initialize(void *context, struct fuse_conn_info *connection) {
  connection->want &= ~FUSE_CAP_AUTO_INVAL_DATA;
}

// Calls a function of the session that a request belongs to.
#define CALL(function, ...) \
  (((struct bs_fuse_session *)fuse_req_userdata(request)) \
       ->calls.function(((struct bs_fuse_session *)fuse_req_userdata(request))->context, __VA_ARGS__))

// A reply that returns ENOENT was not wanted any more: the kernel has no reference, and will close nothing.

static void look_up(fuse_req_t request, fuse_ino_t parent, const char *name) {
  struct bs_fuse_entry entry = {0};
  int error = CALL(look_up, parent, name, &entry);
  if (error) return (void)fuse_reply_err(request, error);
  struct fuse_entry_param result = parameters(&entry);
  if (fuse_reply_entry(request, &result) == -ENOENT) CALL(forget, entry.node, 1);
}

static void forget(fuse_req_t request, fuse_ino_t node, uint64_t count) {
  CALL(forget, node, count);
  fuse_reply_none(request);
}

static void forget_several(fuse_req_t request, size_t count, struct fuse_forget_data *items) {
  for (size_t i = 0; i < count; i++) CALL(forget, items[i].ino, items[i].nlookup);
  fuse_reply_none(request);
}

static void get_attributes(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
  struct bs_fuse_entry entry = {0};
  int error = CALL(attributes, node, &entry);
  if (error) return (void)fuse_reply_err(request, error);
  struct fuse_entry_param result = parameters(&entry);
  fuse_reply_attr(request, &result.attr, forever);
}

static void open_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
  int error = CALL(open, node, &info->fh);
  info->keep_cache = 1;
  if (error) fuse_reply_err(request, error);
  else if (fuse_reply_open(request, info) == -ENOENT) CALL(close, info->fh);
}

static void read_file(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *info) {
  size_t count = 0;
  char *buffer = malloc(size);
  int error = buffer ? CALL(read, info->fh, buffer, size, offset, &count) : ENOMEM;
  if (error) fuse_reply_err(request, error);
  else fuse_reply_buf(request, buffer, count);
  free(buffer);
}

static void close_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
  CALL(close, info->fh);
  fuse_reply_err(request, 0);
}

static void open_folder(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
  int error = CALL(open_folder, node, &info->fh);
  if (error) fuse_reply_err(request, error);
  else if (fuse_reply_open(request, info) == -ENOENT) CALL(close_folder, info->fh);
}

static void list(fuse_req_t request, size_t size, off_t offset, bool holds, uint64_t handle) {
  struct bs_fuse_list list = {.request = request, .holds = holds, .size = size, .bytes = malloc(size)};
  int error = list.bytes ? CALL(list, handle, offset, holds, &list) : ENOMEM;
  // The children in the list have references, so it is sent even if the next one fails.
  if (error && list.used == 0) fuse_reply_err(request, error);
  else fuse_reply_buf(request, list.bytes, list.used);
  free(list.bytes);
}

static void read_folder(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *info) {
  list(request, size, offset, false, info->fh);
}

static void read_folder_plus(
    fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *info) {
  list(request, size, offset, true, info->fh);
}

static void close_folder(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
  CALL(close_folder, info->fh);
  fuse_reply_err(request, 0);
}

static void read_link(fuse_req_t request, fuse_ino_t node) {
  char target[4097];
  size_t count = 0;
  int error = CALL(read_link, node, target, sizeof target - 1, &count);
  target[error ? 0 : count] = 0;
  if (error) fuse_reply_err(request, error);
  else fuse_reply_readlink(request, target);
}

static void reply_attribute(fuse_req_t request, int error, const char *buffer, size_t size, size_t count) {
  if (error) fuse_reply_err(request, error);
  else if (size == 0) fuse_reply_xattr(request, count);
  else fuse_reply_buf(request, buffer, count);
}

static void get_attribute(fuse_req_t request, fuse_ino_t node, const char *name, size_t size) {
  size_t count = 0;
  char *buffer = size ? malloc(size) : NULL;
  int error = size && !buffer ? ENOMEM : CALL(get_attribute, node, name, buffer, size, &count);
  reply_attribute(request, error, buffer, size, count);
  free(buffer);
}

static void list_attributes(fuse_req_t request, fuse_ino_t node, size_t size) {
  size_t count = 0;
  char *buffer = size ? malloc(size) : NULL;
  int error = size && !buffer ? ENOMEM : CALL(list_attributes, node, buffer, size, &count);
  reply_attribute(request, error, buffer, size, count);
  free(buffer);
}

static const struct fuse_lowlevel_ops operations = {
    .init = initialize, .lookup = look_up, .forget = forget, .forget_multi = forget_several,
    .getattr = get_attributes, .open = open_file, .read = read_file, .release = close_file,
    .opendir = open_folder, .readdir = read_folder, .readdirplus = read_folder_plus,
    .releasedir = close_folder, .readlink = read_link, .getxattr = get_attribute,
    .listxattr = list_attributes};

bool bs_fuse_is_available(void) { return true; }

struct bs_fuse_session *bs_fuse_mount(
    const char *folder, const char *options, struct bs_fuse_calls calls, void *context, char *reason,
    size_t reason_size) {
  struct bs_fuse_session *session = calloc(1, sizeof *session);
  if (!session) return NULL;
  session->calls = calls;
  session->context = context;
  last_message[0] = 0;
  fuse_set_log_func(keep_message);
  char *arguments[] = {"blobtool", "-o", (char *)options, NULL};
  struct fuse_args list = FUSE_ARGS_INIT(3, arguments);
  session->fuse = fuse_session_new(&list, &operations, sizeof operations, session);
  fuse_opt_free_args(&list);
  if (session->fuse && fuse_session_mount(session->fuse, folder) == 0) {
    fcntl(fuse_session_fd(session->fuse), F_SETFD, FD_CLOEXEC);
    return session;
  }
  snprintf(reason, reason_size, "%s", last_message);
  if (session->fuse) fuse_session_destroy(session->fuse);
  free(session);
  return NULL;
}

int bs_fuse_run(struct bs_fuse_session *session) {
  struct fuse_loop_config config = {.clone_fd = 0, .max_idle_threads = 10};
  return fuse_session_loop_mt(session->fuse, &config);
}

void bs_fuse_stop(struct bs_fuse_session *session) { fuse_session_exit(session->fuse); }

void bs_fuse_end(struct bs_fuse_session *session) {
  fuse_session_unmount(session->fuse);
  fuse_session_destroy(session->fuse);
  free(session);
}

#else

bool bs_fuse_add(struct bs_fuse_list *list, const char *name, const struct bs_fuse_entry *entry, int64_t next) {
  return false;
}
bool bs_fuse_is_available(void) { return false; }
struct bs_fuse_session *bs_fuse_mount(
    const char *folder, const char *options, struct bs_fuse_calls calls, void *context, char *reason,
    size_t reason_size) {
  return NULL;
}
int bs_fuse_run(struct bs_fuse_session *session) { return 0; }
void bs_fuse_stop(struct bs_fuse_session *session) {}
void bs_fuse_end(struct bs_fuse_session *session) {}

#endif

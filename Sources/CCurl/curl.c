#include "CCurl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                               \
  X(global_init) X(easy_init) X(easy_cleanup) X(easy_reset) X(easy_perform) X(easy_setopt) X(easy_getinfo)         \
  X(easy_strerror) X(slist_append) X(slist_free_all)

#define POINTER(name) __typeof__(curl_##name) *name;
static struct { FUNCTIONS(POINTER) } curl;

const char *bs_curl_start(void) {
#ifdef __APPLE__
#define ADDRESS(name) curl.name = curl_##name;
  FUNCTIONS(ADDRESS)
#else
  static char text[512];
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  bool is_whole = library != NULL;
#define LOOK_UP(name) is_whole = is_whole && (curl.name = dlsym(library, "curl_" #name)) != NULL;
  FUNCTIONS(LOOK_UP)
  if (!is_whole) {
    const char *reason = dlerror();
    snprintf(text, sizeof(text), "%s", reason == NULL ? "it lacks a function" : reason);
    return text;
  }
#endif
  CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT);
  return code == CURLE_OK ? NULL : curl.easy_strerror(code);
}

CURL *bs_curl_open(void) {
  CURL *handle = curl.easy_init();
  // Without a URL this fails at once. It makes the descriptors that the handle keeps for itself.
  if (handle != NULL) curl.easy_perform(handle);
  return handle;
}

void bs_curl_reset(CURL *handle) { curl.easy_reset(handle); }

CURLcode bs_curl_set_long(CURL *handle, CURLoption option, long value) {
  return curl.easy_setopt(handle, option, value);
}

CURLcode bs_curl_set_text(CURL *handle, CURLoption option, const char *value) {
  return curl.easy_setopt(handle, option, value);
}

CURLcode bs_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
  return curl.easy_setopt(handle, option, value);
}

CURLcode bs_curl_set_headers(CURL *handle, struct curl_slist *headers) {
  return curl.easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
}

CURLcode bs_curl_set_error_buffer(CURL *handle, char *buffer) {
  return curl.easy_setopt(handle, CURLOPT_ERRORBUFFER, buffer);
}

// The standard descriptors belong to the program, also while it has closed them.
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
  (void)context, (void)purpose;
  int fd = socket(address->family, address->socktype, address->protocol);
  if (fd < 0) return CURL_SOCKET_BAD;
  if (fd > STDERR_FILENO) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved < 0 ? CURL_SOCKET_BAD : moved;
}

static int use_connection(void *context, curl_socket_t socket, curlsocktype purpose) {
  (void)purpose;
  *(curl_socket_t *)context = socket;
  return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

CURLcode bs_curl_set_connection(CURL *handle, curl_socket_t *connection) {
  CURLcode code = curl.easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  if (code == CURLE_OK) code = curl.easy_setopt(handle, CURLOPT_SOCKOPTFUNCTION, use_connection);
  return code == CURLE_OK ? curl.easy_setopt(handle, CURLOPT_SOCKOPTDATA, connection) : code;
}

CURLcode bs_curl_set_callbacks(CURL *handle, struct bs_curl_callbacks callbacks, void *context) {
  CURLcode codes[] = {
      curl.easy_setopt(handle, CURLOPT_HEADERFUNCTION, callbacks.header),
      curl.easy_setopt(handle, CURLOPT_HEADERDATA, context),
      curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, callbacks.write),
      curl.easy_setopt(handle, CURLOPT_WRITEDATA, context),
      curl.easy_setopt(handle, CURLOPT_READFUNCTION, callbacks.read),
      curl.easy_setopt(handle, CURLOPT_READDATA, context),
      curl.easy_setopt(handle, CURLOPT_SEEKFUNCTION, callbacks.seek),
      curl.easy_setopt(handle, CURLOPT_SEEKDATA, context),
      curl.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, callbacks.progress),
      curl.easy_setopt(handle, CURLOPT_XFERINFODATA, context),
      curl.easy_setopt(handle, CURLOPT_NOPROGRESS, 0L),
  };
  for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
    if (codes[i] != CURLE_OK) return codes[i];
  }
  return CURLE_OK;
}

// curl leaves signals alone (CURLOPT_NOSIGNAL), and TLS libraries may write to a socket that the server has closed.
// The thread blocks the SIGPIPE of that meanwhile, and takes it away.

static bool block_sigpipe(sigset_t *before) {
  sigset_t signals, pending;
  sigemptyset(&pending);
  sigpending(&pending);
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, before);
  return sigismember(&pending, SIGPIPE);
}

static void unblock_sigpipe(const sigset_t *before, bool was_pending) {
  sigset_t signals, pending;
  int number;
  sigemptyset(&pending);
  sigpending(&pending);
  if (!was_pending && sigismember(&pending, SIGPIPE)) {
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    sigwait(&signals, &number);
  }
  pthread_sigmask(SIG_SETMASK, before, NULL);
}

CURLcode bs_curl_perform(CURL *handle) {
  sigset_t before;
  bool was_pending = block_sigpipe(&before);
  CURLcode code = curl.easy_perform(handle);
  unblock_sigpipe(&before, was_pending);
  return code;
}

void bs_curl_close(CURL *handle) {
  sigset_t before;
  bool was_pending = block_sigpipe(&before);
  curl.easy_cleanup(handle);
  unblock_sigpipe(&before, was_pending);
}

void bs_curl_acknowledge(curl_socket_t connection) {
#ifdef TCP_QUICKACK
  int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
#else
  (void)connection;
#endif
}

long bs_curl_long(CURL *handle, CURLINFO info) {
  long value = 0;
  return curl.easy_getinfo(handle, info, &value) == CURLE_OK ? value : 0;
}

const char *bs_curl_text(CURLcode code) { return curl.easy_strerror(code); }

struct curl_slist *bs_curl_append(struct curl_slist *list, const char *line) {
  return curl.slist_append(list, line);
}

void bs_curl_free(struct curl_slist *list) { curl.slist_free_all(list); }

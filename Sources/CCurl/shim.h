#pragma once
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

// Typed forms of curl's variadic functions, which Swift cannot call. The parentheses pass over curl's macros.

static inline CURLcode bs_curl_set_long(CURL *handle, CURLoption option, long value) {
  return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode bs_curl_set_text(CURL *handle, CURLoption option, const char *value) {
  return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode bs_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
  return (curl_easy_setopt)(handle, option, value);
}

static inline CURLcode bs_curl_set_headers(CURL *handle, struct curl_slist *headers) {
  return (curl_easy_setopt)(handle, CURLOPT_HTTPHEADER, headers);
}

static inline CURLcode bs_curl_set_error_buffer(CURL *handle, char *buffer) {
  return (curl_easy_setopt)(handle, CURLOPT_ERRORBUFFER, buffer);
}

static inline long bs_curl_long(CURL *handle, CURLINFO info) {
  long value = 0;
  return (curl_easy_getinfo)(handle, info, &value) == CURLE_OK ? value : 0;
}

// What curl calls during a transfer, each with the same context.
struct bs_curl_callbacks {
  curl_write_callback header;
  curl_write_callback write;
  curl_read_callback read;
  curl_seek_callback seek;
  curl_xferinfo_callback progress;
};

static inline CURLcode bs_curl_set_callbacks(CURL *handle, struct bs_curl_callbacks callbacks, void *context) {
  CURLcode codes[] = {
      (curl_easy_setopt)(handle, CURLOPT_HEADERFUNCTION, callbacks.header),
      (curl_easy_setopt)(handle, CURLOPT_HEADERDATA, context),
      (curl_easy_setopt)(handle, CURLOPT_WRITEFUNCTION, callbacks.write),
      (curl_easy_setopt)(handle, CURLOPT_WRITEDATA, context),
      (curl_easy_setopt)(handle, CURLOPT_READFUNCTION, callbacks.read),
      (curl_easy_setopt)(handle, CURLOPT_READDATA, context),
      (curl_easy_setopt)(handle, CURLOPT_SEEKFUNCTION, callbacks.seek),
      (curl_easy_setopt)(handle, CURLOPT_SEEKDATA, context),
      (curl_easy_setopt)(handle, CURLOPT_XFERINFOFUNCTION, callbacks.progress),
      (curl_easy_setopt)(handle, CURLOPT_XFERINFODATA, context),
      (curl_easy_setopt)(handle, CURLOPT_NOPROGRESS, 0L),
  };
  for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
    if (codes[i] != CURLE_OK) return codes[i];
  }
  return CURLE_OK;
}

static inline int bs_curl_close_on_exec(void *context, curl_socket_t socket, curlsocktype purpose) {
  (void)context;
  (void)purpose;
  return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

// Keeps connections from the programs that this process starts.
static inline CURLcode bs_curl_set_close_on_exec(CURL *handle) {
  return (curl_easy_setopt)(handle, CURLOPT_SOCKOPTFUNCTION, bs_curl_close_on_exec);
}

// curl leaves signals alone (CURLOPT_NOSIGNAL), and TLS libraries may write to a socket that the server has closed.
// The thread blocks the SIGPIPE of that meanwhile, and takes it away.

static inline int bs_curl_block_sigpipe(sigset_t *before) {
  sigset_t signals, pending;
  sigemptyset(&pending);
  sigpending(&pending);
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, before);
  return sigismember(&pending, SIGPIPE);
}

static inline void bs_curl_unblock_sigpipe(const sigset_t *before, int was_pending) {
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

static inline CURLcode bs_curl_perform(CURL *handle) {
  sigset_t before;
  int was_pending = bs_curl_block_sigpipe(&before);
  CURLcode code = curl_easy_perform(handle);
  bs_curl_unblock_sigpipe(&before, was_pending);
  return code;
}

static inline void bs_curl_cleanup(CURL *handle) {
  sigset_t before;
  int was_pending = bs_curl_block_sigpipe(&before);
  curl_easy_cleanup(handle);
  bs_curl_unblock_sigpipe(&before, was_pending);
}

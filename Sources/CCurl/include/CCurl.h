#pragma once
// Plain functions, and the options of every version: what was superseded is no warning.
#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#include <stdbool.h>

// The part of libcurl that this package uses, in forms that Swift can call.
//
// Linux loads libcurl when it is first needed: with its TLS, Kerberos and LDAP it takes longer to load than everything
// else of a program that never speaks to an object store.

// Loads and starts libcurl. Call it once before everything else here. Returns why libcurl cannot be used, or NULL.
const char *bs_curl_start(void);

// Descriptors that it makes may be standard ones that the program has closed: keep those from it meanwhile.
CURL *bs_curl_open(void);
void bs_curl_close(CURL *handle);
void bs_curl_reset(CURL *handle);
CURLcode bs_curl_perform(CURL *handle);

CURLcode bs_curl_set_long(CURL *handle, CURLoption option, long value);
CURLcode bs_curl_set_text(CURL *handle, CURLoption option, const char *value);
CURLcode bs_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value);
CURLcode bs_curl_set_headers(CURL *handle, struct curl_slist *headers);
CURLcode bs_curl_set_error_buffer(CURL *handle, char *buffer);
// Stores the newest connection in `connection`, and keeps it from the programs that this process starts.
CURLcode bs_curl_set_connection(CURL *handle, curl_socket_t *connection);

// What curl calls during a transfer, each with the same context.
struct bs_curl_callbacks {
  curl_write_callback header;
  curl_write_callback write;
  curl_read_callback read;
  curl_seek_callback seek;
  curl_xferinfo_callback progress;
};

CURLcode bs_curl_set_callbacks(CURL *handle, struct bs_curl_callbacks callbacks, void *context);

// Acknowledges at once what has come on a connection.
void bs_curl_acknowledge(curl_socket_t connection);

// A number that curl knows about the last request; 0 if it does not.
long bs_curl_long(CURL *handle, CURLINFO info);
const char *bs_curl_text(CURLcode code);

struct curl_slist *bs_curl_append(struct curl_slist *list, const char *line);
void bs_curl_free(struct curl_slist *list);

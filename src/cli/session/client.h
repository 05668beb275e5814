/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* HTTP client for /v1/sessions, used by the program hermes-session. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct client {
    const char *url;       /* "http://127.0.0.1:8000" */
    const char *unix_path; /* unix socket to connect to instead of a network address, or NULL */
    const char *key;       /* or NULL */
    bool is_default;       /* no server was named: url is the usual address */
};

/* Calls a route. `body` may be NULL. *ret is the answer, NULL when it has no body; the caller
 * owns it. A status other than 2xx is an error with the server's message. */
int client_call(const struct client *client, const char *method, const char *path,
    const json_t *body, json_t **ret, struct err *err);

/* Follows an exec. on_event is called for each event; the last one is `end`. */
typedef void client_event(void *context, const char *name, const json_t *data);
int client_stream(const struct client *client, const char *path, const json_t *body,
    client_event *on_event, void *context, struct err *err);

/* Follows a stream of events that has no last one, until the server closes it. on_event is
 * called with NULL for comments, of which the first says that the server has begun. */
int client_follow(const struct client *client, const char *path, client_event *on_event,
    void *context, struct err *err);

/* Sends a file as the body of a PUT. `size` is negative when it is not known. */
int client_upload(
    const struct client *client, const char *path, int fd, int64_t size, struct err *err);

/* Writes the answer to a GET to fd. *ret_mode is the value of X-Hermes-Mode, or 0. */
int client_download(
    const struct client *client, const char *path, int fd, unsigned *ret_mode, struct err *err);

/* Sets err from an answer with this error status. */
int client_refused(const char *answer, size_t len, long status, struct err *err);

/* Escapes text for a URL with %XX; '/' stays. The caller frees it. */
char *client_escape(const char *text);

/* Checks that `id` is a session id and returns the path of `below` in it. NULL with err. The
 * caller frees it. */
char *client_path(const char *id, const char *below, struct err *err);

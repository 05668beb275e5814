/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client's side of /v1/sessions, for the program hermes-session. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct client {
    const char *url;       /* "http://127.0.0.1:8000" */
    const char *unix_path; /* path of a socket to use instead of a network, or NULL */
    const char *key;       /* or NULL */
};

/* Calls a route. `body` may be NULL; *ret is the answer, NULL when it has no body; the caller
 * owns it. An answer with another status than 2xx is an error with its message. */
int client_call(const struct client *client, const char *method, const char *path,
    const json_t *body, json_t **ret, struct err *err);

/* Follows an exec. Each event is told as it comes; the last one is `end`. */
typedef void client_event(void *context, const char *name, const json_t *data);
int client_stream(const struct client *client, const char *path, const json_t *body,
    client_event *on_event, void *context, struct err *err);

/* Sends a file as the body of a PUT; size is negative when it is not known. */
int client_upload(
    const struct client *client, const char *path, int fd, int64_t size, struct err *err);

/* Writes the answer to a GET to fd. *ret_mode is what X-Hermes-Mode says, or 0. */
int client_download(
    const struct client *client, const char *path, int fd, unsigned *ret_mode, struct err *err);

/* The error that an answer with such a status is. */
int client_refused(const char *answer, size_t len, long status, struct err *err);

/* text with whatever is not plain in a URL as %XX; '/' stays. The caller frees. */
char *client_escape(const char *text);

/* "ID" checked to be one, as a path below /v1/sessions; the caller frees. NULL with err. */
char *client_path(const char *id, const char *below, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A client of the Engine API of Docker and Podman, over a unix socket. One connection for each
 * request. Answers are bounded in size and time. */

#include "backend/backend.h"

#include <jansson.h>

enum { ENGINE_MS = 60000, ENGINE_PING_MS = 5000, ENGINE_ANSWER_MAX = 4 << 20 };

struct engine {
    const char *socket;
    int watch_fd;    /* requests are given up when it closes; -1: never */
    int within_ms;   /* for a request with its answer */
    char prefix[16]; /* "/v1.41", after engine_hello() */
    bool is_podman;
    unsigned newest; /* version 1.N of the API, by its last answer */
};

struct engine_answer {
    unsigned status;
    json_t *json;   /* NULL: no JSON */
    char said[256]; /* its own words, quoted, when it is an error; else "" */
};

/* `body`: NULL for none; `is_tar`: its type. Returns 0 when there is an answer, with any
 * status; -ECONNREFUSED, -ENOENT, -EACCES ... when the engine cannot be reached, -ETIMEDOUT,
 * -ECANCELED, -EPROTO. */
int engine_ask(struct engine *e, const char *method, const char *path, const struct buf *body,
    bool is_tar, struct engine_answer *ret);
int engine_ask_json(struct engine *e, const char *method, const char *path, json_t *body,
    struct engine_answer *ret); /* takes the body */
void engine_answer_done(struct engine_answer *a);

/* Is it there? Chooses the version of the API. */
enum place_error engine_hello(struct engine *e, struct backend *b);

/* Starts an exec: from the head of its answer on, the socket is the program's stream. */
int engine_upgrade(struct engine *e, const char *path, const char *body, int *ret_fd);

/* Turns a failed engine_ask() into an error of the place. */
enum place_error engine_failed(const struct engine *e, struct backend *b, int r);
/* Turns an answer that does not report success into an error of the place. */
enum place_error engine_refused(
    struct backend *b, const char *what, const struct engine_answer *a);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One conversation with the file helper in the box (proto/files.h), for the files of this
 * folder. */

#include "proto/files.h"
#include "session/files/files.h"

struct transfer {
    struct session *s;
    int fd;
    unsigned stall_ms; /* longest time without progress before the helper is given up */
    bool is_counted;   /* it is counted in the session's `transfers` */
    /* Upload: bytes not sent yet, also counted in the session's `uploading`. */
    uint64_t pending;
    uint64_t left;      /* download: bytes not received yet */
    struct purse purse; /* counts its memory in the server's ledger */
    bool has_peeked;
    struct files_record peeked;
    char name[FILES_NAME_MAX + 1];
};

/* Starts a helper in the box. The caller owns *ret. */
int transfer_open(struct session *s, struct transfer **ret, struct err *err);

/* Does the same for a transfer that the session itself keeps. The session's lock is held.
 * Returns negative errno; -EPIPE when the box is gone. */
int transfer_connect(struct transfer *t);

/* Sends a request and its name. The name is kept for error messages. */
int transfer_ask(struct transfer *t, struct files_request request, const char *name);

/* Takes the next record. The name of an entry goes to `name`, with a NUL. -EBADMSG for an
 * invalid record, -EPIPE when the helper has ended, -ETIMEDOUT when it makes no progress. */
int transfer_next(struct transfer *t, struct files_record *ret, char name[FILES_NAME_MAX + 1]);

/* Reads the next record but leaves it for transfer_next(). */
int transfer_peek(struct transfer *t, struct files_record *ret);

/* Receives exactly `len` bytes of content. */
int transfer_receive(struct transfer *t, void *to, size_t len);

/* The files below /box that an exec changed. Only the holder of the session uses it. `since_ns`
 * is the beginning of the exec. */
struct session_changes {
    int64_t since_ns;
    bool is_asked;
};

/* Records that a known change, made by the server itself or already reported, has this stamp.
 */
void session_changes_note(struct session *s, int64_t stamp_ns);
/* session_changes_begin() comes before the code runs. session_changes_ask() sends the request
 * after it, session_changes_end() takes the answer. */
void session_changes_begin(struct session *s, struct session_changes *changes);
void session_changes_ask(struct session *s, struct session_changes *changes);

/* Returns a list of names, or NULL when the changes are not known. */
json_t *session_changes_end(
    struct session *s, const struct session_changes *changes, bool *ret_cut);

/* Turns an error of the helper or of a function above into an error for the caller. */
int transfer_error(const struct transfer *t, int error, struct err *err);

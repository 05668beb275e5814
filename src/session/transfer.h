/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The conversation with the helper of proto/files.h, for core/session_*.c. */

#include "proto/files.h"
#include "session/files.h"

struct transfer {
    struct session *s;
    int fd;
    unsigned stall_ms;  /* a helper that does nothing for so long is given up */
    bool is_counted;    /* among the session's transfers */
    uint64_t pending;   /* of an upload: counted in the session's, and not sent yet */
    uint64_t left;      /* of a download */
    struct purse purse; /* what it takes of the server's memory */
    bool has_peeked;
    struct files_record peeked;
    char name[FILES_NAME_MAX + 1];
};

/* Has a helper started. The caller owns *ret. */
int transfer_open(struct session *s, struct transfer **ret, struct err *err);

/* The same for one that the session keeps, whose lock is held; -EPIPE. */
int transfer_connect(struct transfer *t);

/* Sends a request and its name, which is kept for messages. */
int transfer_ask(struct transfer *t, struct files_request request, const char *name);

/* The next record; the name of an entry goes to `name`, with a NUL. -EBADMSG for what no helper
 * says, -EPIPE when it ended, -ETIMEDOUT when it does nothing any more. */
int transfer_next(struct transfer *t, struct files_record *ret, char name[FILES_NAME_MAX + 1]);

/* The next record without taking it. */
int transfer_peek(struct transfer *t, struct files_record *ret);

/* Exactly so many bytes of content. */
int transfer_receive(struct transfer *t, void *to, size_t len);

/* What an exec changed below /box; used by who holds the session. `since_ns` is the beginning.
 */
struct session_changes {
    int64_t since_ns;
    bool is_asked;
};

/* A change with this stamp is known of. */
void session_changes_note(struct session *s, int64_t stamp_ns);
void session_changes_begin(struct session *s, struct session_changes *changes);
void session_changes_ask(struct session *s, struct session_changes *changes);

/* A list of names, or NULL when nobody knows. */
json_t *session_changes_end(
    struct session *s, const struct session_changes *changes, bool *ret_cut);

/* What an error of the helper's or of the above means to the caller. */
int transfer_error(const struct transfer *t, int error, struct err *err);

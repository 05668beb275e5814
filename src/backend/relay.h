/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of the relay: one session, joined to its place. */

#include "backend/backend.h"
#include "proto/spawn.h"

enum {
    RELAY_HELPERS = 8,
    RELAY_PIECE = 64 << 10,
    RELAY_WAITING = 1 << 20, /* unconfirmed bytes from which on the session is not read */
    RELAY_HEAD = 32,         /* of a line KIND LENGTH */
    RELAY_FRAME_MAX = 16 << 20,
};

struct relay {
    struct backend *b;
    struct backend_stream stream;
    int socket, out, err, channel; /* to the server */
    struct buf words;              /* of the request, with its head */
    bool in_exec;                  /* otherwise output belongs to nothing */
    bool is_over;

    /* To the place. */
    struct buf to; /* bytes that it has not confirmed */
    uint64_t to_base;
    size_t to_at;
    struct buf own; /* frames of the relay, until one of the server's is whole */
    char server_head[RELAY_HEAD];
    size_t server_head_len;
    size_t server_left; /* bytes of the frame from the server that are to come */

    uint64_t ping_ms;  /* when the next `ping` is due */
    uint64_t heard_ms; /* when the last byte of the place came */

    /* From the place. */
    uint64_t received, told;
    char piece[RELAY_PIECE];
    size_t piece_at, piece_len;
    char head[RELAY_HEAD]; /* the line of the current frame; sent first if it is for the server
                            */
    size_t head_len, head_sent;
    bool has_frame;
    int target; /* an enum of relay_in.c */
    size_t left;
    char small[64]; /* payload of a short frame, or the number of a conversation */
    size_t small_len;
    struct relay_helper *helper; /* of the current frame */

    struct relay_helper {
        uint32_t id; /* 0: unused */
        int fd;
    } helpers[RELAY_HELPERS];
    uint32_t last_id;
    pid_t terminals[RELAY_HELPERS]; /* near ends; 0: unused */
};

/* relay_in.c: reads a line KIND LENGTH with its newline, of at most RELAY_HEAD bytes. Returns
 * `kind`, or NULL when the line has another form. */
char *relay_parse_head(
    const char *line, size_t len, char kind[RELAY_HEAD + 1], size_t *ret_len);

/* Handles the bytes of the place as far as their receivers have room. Returns 0, or -EPROTO
 * when the bytes are not frames. *ret_wait_fd is the descriptor that has no room now, or -1. */
int relay_take(struct relay *r, int *ret_wait_fd);
/* Bytes that still come for this helper are dropped. */
void relay_forget(struct relay *r, const struct relay_helper *h);

/* relay_out.c */
void relay_start(struct relay *r); /* the frame that starts the interpreter, with r->words */
void relay_own(struct relay *r, const char *kind, const void *data, size_t len);
int relay_channel(struct relay *r); /* reads frames of the server; -EPROTO */
void relay_command(struct relay *r);
/* Begins a conversation that a frame `kind` opens at the far end. Takes fd; -EBUSY when there
 * are as many as there may be. */
int relay_add_helper(struct relay *r, int fd, const char *kind);
void relay_helper_read(struct relay *r, struct relay_helper *h);
void relay_helper_drop(struct relay_helper *h);
/* Fills up a frame that the server has left unfinished. */
void relay_complete(struct relay *r);
bool relay_is_full(const struct relay *r);

/* terminal.c: opens a terminal in the place. Takes the server's socket (proto/terminal.h). */
void relay_terminal(struct relay *r, int control_fd);

/* relay.c */
void relay_event(const struct relay *r, struct spawn_event event);
int relay_confirm(struct relay *r, uint64_t count);

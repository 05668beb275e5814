/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The conversation of one connection, in plain text: requests of a box become requests with the
 * secrets' headers, and answers of the server become answers without their values. One exchange
 * after the other: the next request is read when the answer is complete. It does no I/O. */

#include "base/buf.h"
#include "inject/body.h"
#include "inject/scrub.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXCHANGE_SECRETS = 32 };

struct exchange_secret {
    const char *header; /* its name */
    const char *line;   /* its content, "Bearer ..." */
    const char *value;  /* the part of the line that answers must not show */
};

/* The host of a connection, and its secrets. Borrowed as long as the exchange lives. */
struct exchange_rule {
    const char *host;
    uint16_t port;
    size_t count;
    struct exchange_secret secrets[EXCHANGE_SECRETS];
};

enum exchange_phase { PHASE_HEAD, PHASE_BODY, PHASE_DONE };

struct exchange {
    const struct exchange_rule *rule;
    enum exchange_phase request;
    enum exchange_phase answer;
    struct body up;
    struct body down;
    bool is_bodiless; /* HEAD: the answer has a head only */
    bool is_last;     /* the connection ends with this exchange */
    bool has_begun;   /* the box has got a part of the answer */
    bool is_over; /* nothing more is read: written bytes are sent, then the connection closes */
    bool is_cut;  /* ends without a clean TLS close, so that the box sees that data is
                   * missing */
    struct scrub scrubs[EXCHANGE_SECRETS];
    struct buf clean[2];
};

void exchange_init(struct exchange *x, const struct exchange_rule *rule);
void exchange_done(struct exchange *x);

/* Reads bytes of the box. *ret_taken: how many; the rest is given again later, with what
 * follows it. Returns 0, or negative errno when `to_server` is full. */
int exchange_request(struct exchange *x, const char *data, size_t len, struct buf *to_server,
    struct buf *to_box, size_t *ret_taken);

/* The same for bytes of the server; they are changed in their place. */
int exchange_answer(
    struct exchange *x, char *data, size_t len, struct buf *to_box, size_t *ret_taken);

/* The server has closed the connection; `is_clean`: after the close_notify of TLS. */
int exchange_answer_end(struct exchange *x, bool is_clean, struct buf *to_box);

/* The server cannot be reached: tells the box, unless it has an answer already. */
void exchange_fail(struct exchange *x, struct buf *to_box);

/* Whether bytes of the box, or of the server, could be read now. */
bool exchange_wants_request(const struct exchange *x);
bool exchange_wants_answer(const struct exchange *x);

/* Whether nothing is under way, so that the box may leave. */
bool exchange_is_idle(const struct exchange *x);

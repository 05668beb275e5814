/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-reach makes the HTTP calls of Hermes itself to the outside. The monitor starts it with
 * a socket at REACH_FD and sends one packet with REACH_FDS descriptors: the sealed table, and
 * the socket on which calls come. The monitor keeps both ends of that socket, gives the other
 * one to each server, and so neither program notices when the other is replaced.
 *
 * A call is a struct reach_call with two descriptors: a sealed memfd that holds the body, and a
 * stream socket for the answer: a struct reach_answer, the body of the HTTP answer, and the
 * end. A caller that sees the end without a whole answer knows that there is none. The server
 * names a target of the table; it has neither the address nor the key. */

#include <stdint.h>

enum { REACH_FD = 3 };
enum { REACH_TABLE, REACH_CALLS, REACH_FDS };

enum reach_target { REACH_REVIEWER, REACH_WEBHOOK, REACH_TARGETS };

enum {
    REACH_URL = 1024,
    REACH_KEY = 1024,
    REACH_BODY_MAX = 1 << 20,    /* of a request */
    REACH_ANSWER_MAX = 64 << 10, /* of an answer; a longer one is REACH_TOO_LONG */
    REACH_CALLS_MAX = 64,        /* at a time; further ones wait in the socket */
    REACH_WEBHOOKS_MAX = 32,     /* of these, so that webhooks leave room for the reviewer */
    REACH_WEBHOOKS_WAITING = 64, /* that wait for room; further ones are lost */
};

/* One row for each enum reach_target; an empty url: there is none. */
struct reach_table {
    struct reach_row {
        char url[REACH_URL];
        char key[REACH_KEY]; /* sent as a bearer token; "" for none */
        uint32_t timeout_ms;
        uint32_t reserved;
    } rows[REACH_TARGETS];
};

enum { REACH_CALL_BODY, REACH_CALL_ANSWER, REACH_CALL_FDS };
struct reach_call {
    uint32_t target; /* enum reach_target */
    uint32_t body_len;
};

enum reach_error {
    REACH_FINE,
    REACH_TIMEOUT,
    REACH_UNREACHABLE,
    REACH_TOO_LONG,
    REACH_REFUSED, /* no such target, or a wrong call */
};

struct reach_answer {
    uint32_t error; /* enum reach_error */
    uint32_t status;
    uint32_t body_len;
    uint32_t reserved;
};

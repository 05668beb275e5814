/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-inject. The program has one thread and one epoll. It alone
 * holds the values of secrets. Every byte from a box is hostile, and so is a server's.
 *
 *   main.c      the loop, and messages of egress
 *   table.c     the secrets, with their certificates
 *   conn.c      one connection: TLS to the box, TLS to the server, and the exchange between
 *   exchange.c  requests and answers in plain text; head.c, body.c and scrub.c are its parts
 *   confine.c   gives up every right */

#include "inject/exchange.h"
#include "proto/inject.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* --- table.c */

struct secret {
    char host[NETWORK_NAME];
    uint16_t port;
    char header[INJECT_HEADER];
    char *line;
    char *value;
    gnutls_certificate_credentials_t to_box;
    gnutls_certificate_credentials_t to_server;
};

struct table {
    uint32_t count;
    struct secret secrets[NETWORK_MAX_SECRETS];
};

/* Reads the sealed memfd. Returns 0 or negative errno. */
int table_read(struct table *table, int fd);

/* Fills in the rule of a connection with these secrets. They must exist and be for one host and
 * port: otherwise -EINVAL. *ret_first is one of them. */
int table_rule(const struct table *table, uint32_t secrets, struct exchange_rule *ret,
    const struct secret **ret_first);

/* --- conn.c */

struct inject;
struct conn;
TAILQ_HEAD(conn_list, conn);

/* One of the two descriptors of a connection. */
struct side {
    struct conn *conn; /* first: the loop's events point here */
    int fd;            /* owned */
    gnutls_session_t session;
    bool is_open;     /* the handshake is done */
    bool has_ended;   /* it sends no more */
    bool is_gone;     /* ... and reads no more */
    size_t sending;   /* bytes that TLS has begun to send, and must be asked for again */
    uint32_t watched; /* events in the epoll */
    struct buf in;
    struct buf out;
    size_t out_at;
};

struct conn {
    TAILQ_ENTRY(conn) entry;
    struct inject *inject;
    struct side box;
    struct side server;
    struct exchange_rule rule;
    struct exchange exchange;
    uint64_t deadline_ms;
    bool has_more;   /* its turn ended before everything was done */
    bool is_leaving; /* the box has got everything; bytes that it still sends are thrown away */
    bool is_dead;    /* freed at the end of the turn */
};

/* Takes both descriptors. Returns 0 or negative errno; the descriptors are then closed. */
int conn_new(struct inject *inject, uint32_t secrets, int box_fd, int server_fd);
void conn_serve(struct conn *c);
void conn_hung_up(struct side *s); /* the peer is gone */
void conn_kill(struct conn *c);
void conn_free(struct conn *c);

/* --- main.c */

struct inject {
    int epoll_fd;
    uint64_t now_ms;
    struct table table;
    struct conn_list conns;
    unsigned conn_count; /* counts also connections that wait to be freed */
    struct conn_list dead;
};

/* --- confine.c */

/* Gives up all capabilities; no other process may read its memory. */
int confine_identity(void);

/* No file, no program, no new socket: only the descriptors that egress sends. */
int confine_rest(void);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the name servers of the host (c-ares). One thread, no files after resolver_new(): the
 * owner waits for resolver_fd() with its other descriptors and calls resolver_process().
 *
 * Needed system calls: socket (INET and INET6, STREAM and DGRAM), connect, sendto, recvfrom,
 * getsockname, setsockopt, fcntl, close, epoll_ctl, epoll_wait, memory, clock. */

#include "base/address.h"
#include "proto/network.h"

#include <stddef.h>
#include <stdint.h>

enum {
    RESOLVER_MAX_ADDRESSES = 32,
    RESOLVER_MAX_OUTSTANDING = 1024, /* questions to name servers at a time; of one owner: no
                                        more than it leaves free */
    RESOLVER_MAX_WAITERS = 4096,     /* callers that wait for them */
    RESOLVER_CACHE = 1024,           /* answers kept */
    RESOLVER_CACHE_S = 60,           /* ... at most this long, */
    RESOLVER_CACHE_MISSING_S = 5,    /* and the answer that a name does not exist this long */
};

enum resolver_status {
    RESOLVER_FOUND,
    RESOLVER_NO_DATA, /* the name exists, not with this type */
    RESOLVER_NO_NAME,
    RESOLVER_FAILED, /* no answer, or no sensible one */
};

/* Borrowed during the callback. */
struct resolver_answer {
    enum resolver_status status;
    uint32_t ttl_s; /* the shortest of the addresses; of a kept answer: the time that is left */
    size_t count;   /* of types A and AAAA */
    struct address addresses[RESOLVER_MAX_ADDRESSES];
    const uint8_t *raw; /* of other types: the whole answer, for dns_copy(), or NULL */
    size_t raw_len;
};

typedef void resolver_done(void *context, const struct resolver_answer *answer);

struct resolver_options {
    size_t server_count; /* 0: those of /etc/resolv.conf, read in resolver_new() */
    struct address servers[NETWORK_MAX_RESOLVERS];
    uint16_t port;  /* of `servers`; 0: 53 */
    int timeout_ms; /* of the first try of a server; 0: 2,000 */
};

struct resolver;

/* Reads files; call it before confinement. Returns 0 or negative errno. */
int resolver_new(struct resolver **ret, const struct resolver_options *options);
void resolver_free(struct resolver *r); /* accepts NULL; calls no one back */

/* Asks for a name (see dns_parse() for what it may hold) and a type. `done` is called once,
 * perhaps before this returns 0, unless resolver_forget() comes first. It may ask again, and it
 * may forget. Answers are shared only among callers with the same `owner`, so that no key
 * learns from the time of an answer what another asked. Returns 0, -EBUSY when too many
 * wait, or -EINVAL for a name that is empty or too long: then `done` is not called. */
int resolver_ask(struct resolver *r, const char *name, uint16_t type, uint32_t owner,
    resolver_done *done, void *context);

/* Drops the callbacks with this context. */
void resolver_forget(struct resolver *r, const void *context);

/* For an epoll of the owner, with EPOLLIN. */
int resolver_fd(const struct resolver *r);

/* Milliseconds until resolver_process() must be called though the descriptor stays quiet; -1:
 * never. */
int resolver_timeout_ms(struct resolver *r);
void resolver_process(struct resolver *r);

/* SPDX-License-Identifier: Apache-2.0 */

/* Connections that get a secret. A box asked for it, the address was resolved from the secret's
 * host, the port is the secret's, and the TLS server name is the host: then hermes-inject gets
 * the server's socket and one end of a stream. The box's socket stays here with the other end,
 * so limits, records and the end of a connection are as for any other. Without hermes-inject
 * such a connection is refused. */

#include "egress/egress.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fdpass.h"
#include "proto/inject.h"

#include <errno.h>
#include <string.h>

/* The most connections of one key. hermes-inject has memory for about a thousand
 * connections. */
enum { HANDED_OVER_MAX = 256 };

static enum served serve_inject(struct source *s)
{
    char byte;
    ssize_t n = recv(s->fd, &byte, 1, MSG_DONTWAIT);
    if (n > 0 || errno != EAGAIN) /* hermes-inject sends nothing, so it has ended */
        loop_close(s->owner, s);
    return SERVED_ALL;
}

/* Takes the socket of a new hermes-inject. */
static enum served serve_link(struct source *s)
{
    struct egress *e = s->owner;
    char mark;
    int fd;
    unsigned count;
    ssize_t n = fdpass_receive_now(s->fd, &mark, sizeof(mark), &fd, 1, &count);
    if (n == -EAGAIN)
        return SERVED_ALL;
    if (n != 1 || mark != INJECT_SOCKET_MARK || count != 1) { /* the monitor has ended */
        loop_close(e, s);
        return SERVED_ALL;
    }
    loop_close(e, &e->inject);
    e->inject.fd = fd;
    if (loop_add(e, &e->inject) < 0)
        loop_close(e, &e->inject);
    return SERVED_ALL;
}

int secrets_open(struct egress *e, int link_fd)
{
    e->inject = (struct source){.serve = serve_inject, .owner = e, .fd = -EBADF};
    e->inject_link = (struct source){.serve = serve_link, .owner = e, .fd = link_fd};
    return link_fd < 0 ? 0 : loop_add(e, &e->inject_link);
}

static bool is_pinned(const struct box *b, const struct address *address, const char *host)
{
    size_t at = 0;
    for (const char *name; (name = pins_next(&b->pins, address, b->egress->now_ms, &at));) {
        if (strcmp(name, host) == 0)
            return true;
    }
    return false;
}

uint32_t secrets_possible(const struct box *b, const struct address *address, uint16_t port)
{
    const struct network_ceiling *ceiling = &b->egress->ceiling;
    uint32_t found = 0;
    for (uint32_t i = 0; i < ceiling->secret_count; i++) {
        const struct network_secret *s = &ceiling->secrets[i];
        if (b->policy.secrets >> i & 1 && s->port == port && is_pinned(b, address, s->host))
            found |= 1u << i;
    }
    return found;
}

uint32_t secrets_of_host(const struct egress *e, uint32_t secrets, const char *host)
{
    for (uint32_t i = 0; i < e->ceiling.secret_count; i++) {
        if (strcmp(e->ceiling.secrets[i].host, host) != 0)
            secrets &= ~(1u << i);
    }
    return secrets;
}

uint32_t secrets_hand_over(struct conn *c, uint32_t secrets)
{
    struct egress *e = c->box->egress;
    const struct inject_message message = {.kind = INJECT_CONNECTION, .secrets = secrets};
    int pair[2];
    if (c->box->owner->handed_over >= HANDED_OVER_MAX)
        return REASON_CONNECTION_LIMIT;
    if (e->inject.fd < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return REASON_NO_SECRET;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    int fds[INJECT_CONNECTION_FDS] = {theirs, c->outside.fd};
    tcp_set_abrupt(c->outside.fd, false); /* TLS has an end of its own */
    if (fdpass_send_now(e->inject.fd, &message, sizeof(message), fds, INJECT_CONNECTION_FDS) <
        0)
        return REASON_NO_SECRET;
    loop_close(e, &c->outside);
    c->outside.is_readable = c->outside.is_writable = c->outside.is_hung_up = false;
    c->outside.fd = take_fd(&ours);
    c->secrets = secrets;
    c->box->owner->handed_over++;
    return loop_add(e, &c->outside) < 0 ? REASON_NO_SECRET : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Carries bytes between the two sockets of a connection. Bytes stay in the socket they came
 * from until the other has taken them (peek, send, discard), so a connection holds no memory
 * here, and a slow side slows down the other by TCP itself. */

#include "egress/egress.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

enum moved { MOVED_ALL, MOVED_MORE, MOVED_STARVED, MOVED_BROKEN, MOVED_OVER };

void relay_begin(struct conn *c)
{
    c->state = CONN_RELAYING;
    c->deadline_ms = UINT64_MAX;
    loop_queue(&c->outside);
}

/* --- the TLS server name */

static void deny(struct conn *c, const char *name, uint32_t reason)
{
    box_deny_name(c->box, NETWORK_TCP, name, c->ref.key.port, reason);
    tcp_end(c, true);
}

static void pass(struct conn *c, const char *name)
{
    c->server_name = name ? xstrdup(name) : NULL;
    c->check = CHECK_DONE;
    c->deadline_ms = UINT64_MAX;
}

/* The bytes of the box go to hermes-inject; the relay goes on when that socket is ready. */
static bool hand_over(struct conn *c, const char *name)
{
    pass(c, name);
    uint32_t secrets = secrets_of_host(c->box->egress, c->possible, name);
    uint32_t reason = secrets_hand_over(c, secrets);
    if (reason)
        deny(c, name, reason);
    return false;
}

/* Looks at the first bytes of the box. Until the name is known, nothing goes out; what the
 * server says first goes in. Returns false while it is unknown. */
static bool check_hello(struct conn *c)
{
    struct egress *e = c->box->egress;
    struct hello hello;
    ssize_t n = recv(c->inside.fd, e->buffer, HELLO_MAX, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        c->inside.is_readable = false;
        return false;
    }
    if (n <= 0) { /* an end without a byte */
        pass(c, NULL);
        return true;
    }
    struct policy_view view = box_view(c->box);
    enum hello_state state = hello_read(&hello, e->buffer, (size_t)n);
    switch (state) {
    case HELLO_MORE:
        if (c->inside.is_hung_up)
            break;
        if (c->deadline_ms == UINT64_MAX)
            c->deadline_ms = e->now_ms + HELLO_MS;
        c->inside.is_readable = false;
        return false;
    case HELLO_NAMED:
        if (secrets_of_host(e, c->possible, hello.name))
            return hand_over(c, hello.name);
        if (c->is_by_name && !(c->is_approved && strcmp(hello.name, c->ref.key.host) == 0) &&
            policy_decide_server(&view, hello.name, c->ref.key.port)) {
            deny(c, hello.name, REASON_SERVER_NAME);
            return false;
        }
        pass(c, hello.name);
        return true;
    case HELLO_NAMELESS:
    case HELLO_NOT_TLS:
        pass(c, NULL);
        return true;
    case HELLO_UNREADABLE:
        break;
    }
    deny(c, c->ref.key.host, REASON_UNREADABLE_HELLO);
    return false;
}

/* --- bytes */

/* The number of bytes that may be read now. At the byte limit it is one more, to find out
 * whether more bytes come. */
static size_t room(struct conn *c, enum direction d)
{
    struct box *b = c->box;
    uint64_t most = CHUNK;
    uint64_t rate = account_rate(&b->account, d, b->egress->now_ms);
    uint64_t left = account_left(&b->account, d);
    most = rate < most ? rate : most;
    return (size_t)(left < most ? (left ? left : 1) : most);
}

/* A connection whose one side has ended may not stay silent without limit. */
static void extend(struct conn *c)
{
    if (c->up.is_shut || c->down.is_shut)
        c->deadline_ms =
            c->box->egress->now_ms + (c->up.is_shut ? HALF_CLOSED_MS : SERVER_GONE_MS);
}

static enum moved shut(struct conn *c, struct half *h, const struct source *to)
{
    (void)shutdown(to->fd, SHUT_WR);
    h->is_shut = true;
    extend(c);
    return MOVED_ALL;
}

/* Moves one chunk. MOVED_MORE: there may be another. */
static enum moved move_chunk(
    struct conn *c, struct half *h, struct source *from, struct source *to, enum direction d)
{
    struct box *b = c->box;
    struct egress *e = b->egress;
    size_t want = room(c, d);
    if (want == 0)
        return MOVED_STARVED;
    ssize_t n = recv(from->fd, e->buffer, want, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        from->is_readable = false;
        return MOVED_ALL;
    }
    if (n < 0)
        return MOVED_BROKEN;
    if (n == 0)
        return shut(c, h, to);
    uint64_t left = account_left(&b->account, d);
    if (left == 0)
        return MOVED_OVER;
    size_t size = (uint64_t)n < left ? (size_t)n : (size_t)left;
    ssize_t sent = send(to->fd, e->buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) {
        to->is_writable = false;
        return MOVED_ALL;
    }
    if (sent < 0 || recv(from->fd, e->buffer, (size_t)sent, MSG_TRUNC | MSG_DONTWAIT) != sent)
        return MOVED_BROKEN;
    box_count(b, &c->ref, d, (uint64_t)sent);
    b->turn_left -= sent;
    extend(c);
    return MOVED_MORE;
}

/* Moves a chunk in one direction where that is possible. */
static enum moved move(
    struct conn *c, struct half *h, struct source *from, struct source *to, enum direction d)
{
    if (h->is_shut || !from->is_readable || !to->is_writable)
        return MOVED_ALL;
    return move_chunk(c, h, from, to, d);
}

static enum served settle(struct conn *c, enum moved up, enum moved down)
{
    if (up == MOVED_OVER || down == MOVED_OVER) {
        box_exceed(c->box);
        return SERVED_ALL;
    }
    if (up == MOVED_BROKEN || down == MOVED_BROKEN) {
        tcp_end(c, true);
        return SERVED_ALL;
    }
    if (c->up.is_shut && c->down.is_shut) {
        tcp_end(c, false);
        return SERVED_ALL;
    }
    if (up == MOVED_MORE || down == MOVED_MORE)
        return SERVED_MORE;
    return up == MOVED_STARVED || down == MOVED_STARVED ? SERVED_STARVED : SERVED_ALL;
}

/* The box is gone. The bytes that it has written are still sent to the server. Unread bytes of
 * the server are read and dropped: if they stayed, closing the socket would send a reset, which
 * could overtake the box's last bytes. */
static enum served serve_last(struct conn *c)
{
    enum moved up = MOVED_ALL;
    if (c->check != CHECK_PENDING ||
        (c->inside.is_readable && c->outside.is_writable && check_hello(c)))
        up = move(c, &c->up, &c->inside, &c->outside, SENT);
    if (c->state == CONN_DEAD)
        return SERVED_ALL;
    if (c->up.is_shut) {
        while (recv(c->outside.fd, c->box->egress->buffer, CHUNK, MSG_TRUNC | MSG_DONTWAIT) > 0)
            ;
        tcp_end(c, false);
        return SERVED_ALL;
    }
    return settle(c, up, MOVED_ALL);
}

enum served relay_serve(struct conn *c)
{
    if (c->box->is_leaving)
        return serve_last(c);
    enum moved down = move(c, &c->down, &c->outside, &c->inside, RECEIVED);
    enum moved up = MOVED_ALL;
    if (down == MOVED_OVER || down == MOVED_BROKEN)
        return settle(c, up, down);
    if (c->check != CHECK_PENDING ||
        (c->inside.is_readable && c->outside.is_writable && check_hello(c)))
        up = move(c, &c->up, &c->inside, &c->outside, SENT);
    if (c->state == CONN_DEAD)
        return SERVED_ALL;
    return settle(c, up, down);
}

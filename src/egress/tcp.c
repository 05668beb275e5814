/* SPDX-License-Identifier: Apache-2.0 */

/* Connections until both sides are connected. The kernel drops each SYN of a box and reports
 * it. Egress decides and connects outside first; then it sends the same SYN again, with the
 * mark that passes, and the kernel's own TCP completes the handshake with the box. So connect()
 * in the box succeeds only when there is a server, and fails as it should otherwise. */

#include "egress/egress.h"

#include "base/alloc.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    CONN_DESCRIPTORS = 2,
    REPORTS = 64, /* read in one turn */
    REPORT_ROOM = 8192,
    KEEPALIVE_S = 60,
    UNACKNOWLEDGED_MS = 120000,
    WIDE_CONNS = 16,          /* this many connections of a box have large outside buffers, */
    WIDE_KEY_CONNS = 64,      /* and this many of all boxes of a key; */
    NARROW_BYTES = 256 << 10, /* others have these, so that no box can fill the memory */
};

/* --- the end */

void tcp_set_abrupt(int fd, bool is_abrupt)
{
    const struct linger linger = {.l_onoff = is_abrupt, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static void close_side(struct egress *e, struct source *s, bool is_reset)
{
    if (s->fd >= 0)
        tcp_set_abrupt(s->fd, is_reset);
    loop_close(e, s);
}

void tcp_end(struct conn *c, bool is_reset)
{
    struct box *b = c->box;
    struct egress *e = b->egress;
    struct conn **at = &b->conn_table[box_slot(&c->syn.ends)];
    if (c->state == CONN_DEAD)
        return;
    close_side(e, &c->inside, is_reset);
    close_side(e, &c->outside, is_reset);
    if (c->lookup)
        lookup_end(c->lookup);
    if (c->question)
        ask_leave(c->question);
    c->question = NULL;
    if (c->secrets)
        b->owner->handed_over--;
    c->state = CONN_DEAD;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    TAILQ_REMOVE(&b->conns, c, entry);
    TAILQ_INSERT_TAIL(&e->dead_conns, c, entry);
    box_release(b, CONN_DESCRIPTORS);
}

/* There is no connection: tells the box what happened. */
static void refuse(struct conn *c, int error)
{
    if (error == ECONNREFUSED || error == ECONNRESET)
        inject_reset(c->box, &c->syn);
    else
        inject_unreachable_syn(c->box, &c->syn, PACKET_HOST_UNREACHABLE);
    tcp_end(c, false);
}

void tcp_expire(struct conn *c)
{
    if (c->state == CONN_CONNECTING || c->state == CONN_PROXYING) {
        refuse(c, ETIMEDOUT);
        return;
    }
    if (c->state == CONN_RELAYING && c->check == CHECK_PENDING && !c->down.is_shut)
        box_deny_name(
            c->box, NETWORK_TCP, c->ref.key.host, c->ref.key.port, REASON_UNREADABLE_HELLO);
    tcp_end(c, true);
}

/* --- outside */

static int open_outside(struct conn *c, const struct address *to, uint16_t port)
{
    const int on = 1;
    const int idle = KEEPALIVE_S;
    const unsigned patience = UNACKNOWLEDGED_MS;
    struct sockaddr_storage name;
    socklen_t len = sockaddr_make(&name, to, port);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    c->outside.fd = fd;
    tcp_set_abrupt(fd, true);
    if (c->box->account.connections > WIDE_CONNS ||
        c->box->owner->account.connections > WIDE_KEY_CONNS) {
        const int bytes = NARROW_BYTES;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&name, len) < 0 && errno != EINPROGRESS)
        return -errno;
    return loop_add(c->box->egress, &c->outside);
}

/* The server is there. Now the box may be. */
static void let_in(struct conn *c)
{
    c->state = CONN_WAITING;
    c->deadline_ms = c->box->egress->now_ms + CONNECT_MS;
    inject_syn(c->box, &c->syn);
}

static enum served ask_upstream(struct conn *c)
{
    char request[UPSTREAM_REQUEST];
    const struct network_ceiling *ceiling = &c->box->egress->ceiling;
    char text[ADDRESS_TEXT];
    const struct address *to = &c->to;
    address_print(to, text);
    bool is_by_name = ceiling->upstream_resolves && pins_is_stand_in(to);
    size_t len = upstream_request(request, is_by_name ? c->ref.key.host : text,
        c->syn.ends.destination_port, ceiling->upstream_credentials);
    c->state = CONN_PROXYING;
    if (len == 0 ||
        send(c->outside.fd, request, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        refuse(c, EHOSTUNREACH);
    return SERVED_ALL;
}

/* Takes only the bytes of the proxy's answer: the bytes after it come from the server. */
static enum served read_upstream(struct conn *c)
{
    char *buffer = (char *)c->box->egress->buffer;
    for (;;) {
        size_t taken = 0;
        ssize_t n = recv(c->outside.fd, buffer, UPSTREAM_MAX_HEAD, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            c->outside.is_readable = false;
            return SERVED_ALL;
        }
        enum upstream_state state = UPSTREAM_FAILED;
        if (n > 0)
            state = upstream_feed(&c->upstream, buffer, (size_t)n, &taken);
        if (state == UPSTREAM_FAILED) {
            refuse(c, EHOSTUNREACH);
            return SERVED_ALL;
        }
        (void)recv(c->outside.fd, buffer, taken, MSG_TRUNC | MSG_DONTWAIT);
        if (state == UPSTREAM_OPEN) {
            let_in(c);
            return SERVED_ALL;
        }
    }
}

static enum served serve_connecting(struct conn *c)
{
    int error = 0;
    socklen_t len = sizeof(error);
    if (!c->outside.is_writable)
        return SERVED_ALL;
    (void)getsockopt(c->outside.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        refuse(c, error);
        return SERVED_ALL;
    }
    if (c->box->egress->ceiling.upstream_port)
        return ask_upstream(c);
    let_in(c);
    return SERVED_ALL;
}

enum served tcp_serve_conn(struct source *s)
{
    struct conn *c = s->owner;
    c->box->turn_left -= STEP_COST;
    switch (c->state) {
    case CONN_CONNECTING:
        return serve_connecting(c);
    case CONN_PROXYING:
        return read_upstream(c);
    case CONN_RELAYING:
        return relay_serve(c);
    case CONN_ASKING:
        return lookup_serve_conn(c);
    case CONN_HELD:
    case CONN_WAITING: /* bytes of the server wait in its socket meanwhile */
    case CONN_DEAD:
        return SERVED_ALL;
    }
    return SERVED_ALL;
}

/* --- attempts */

static struct conn *find(const struct box *b, const struct packet_ends *ends)
{
    struct conn *c = b->conn_table[box_slot(ends)];
    while (c && !packet_ends_equal(&c->syn.ends, ends))
        c = c->next;
    return c;
}

static struct conn *add(struct box *b, const struct packet_syn *syn)
{
    struct conn *c = xcalloc(1, sizeof(*c));
    struct conn **slot = &b->conn_table[box_slot(&syn->ends)];
    c->box = b;
    c->syn = *syn;
    c->state = CONN_CONNECTING;
    c->deadline_ms = b->egress->now_ms + CONNECT_MS;
    c->inside = c->outside =
        (struct source){.box = b, .serve = tcp_serve_conn, .owner = c, .fd = -EBADF};
    c->next = *slot;
    *slot = c;
    TAILQ_INSERT_TAIL(&b->conns, c, entry);
    return c;
}

/* Whether a connection has these ends already, and this SYN is only a repetition. */
static bool is_known(struct box *b, const struct packet_syn *syn)
{
    struct conn *c = find(b, &syn->ends);
    if (!c)
        return false;
    if (c->syn.sequence != syn->sequence) { /* the box has forgotten the old connection */
        tcp_end(c, true);
        return false;
    }
    if (c->state == CONN_WAITING)
        inject_syn(b, &c->syn);
    return true;
}

/* Tells the box that there is no connection. */
static void deny(const struct box *b, const struct packet_syn *syn, uint32_t reason)
{
    if (reason == REASON_NO_ROUTE)
        inject_unreachable_syn(b, syn, PACKET_HOST_UNREACHABLE);
    else
        inject_reset(b, syn);
}

/* Begins a connection that is permitted. */
static void begin(struct conn *c)
{
    const struct network_ceiling *ceiling = &c->box->egress->ceiling;
    uint16_t port = c->syn.ends.destination_port;
    c->check = c->is_by_name || c->possible ? CHECK_PENDING : CHECK_NONE;
    if (port == DNS_PORT) {
        let_in(c);
        return;
    }
    int r = ceiling->upstream_port ? open_outside(c, &ceiling->upstream, ceiling->upstream_port)
                                   : open_outside(c, &c->to, port);
    if (r < 0)
        refuse(c, -r);
}

void tcp_refuse(struct conn *c, uint32_t reason)
{
    c->question = NULL;
    box_settle(c->box, &c->ref, reason, NULL);
    deny(c->box, &c->syn, reason);
    tcp_end(c, false);
}

void tcp_proceed(struct conn *c, const struct address *to)
{
    c->question = NULL;
    c->is_approved = true;
    c->to = *to;
    box_settle(c->box, &c->ref, 0, to);
    c->state = CONN_CONNECTING;
    c->deadline_ms = c->box->egress->now_ms + CONNECT_MS;
    begin(c);
}

static void hold(struct conn *c)
{
    c->state = CONN_HELD;
    c->deadline_ms = UINT64_MAX;
    uint32_t reason = ask_hold(c->box, &c->ref.key, &c->question);
    if (reason)
        tcp_refuse(c, reason);
    else
        ask_begin(c->question);
}

static void attempt(struct box *b, const struct packet_syn *syn)
{
    const struct packet_ends *ends = &syn->ends;
    const struct attempt what = {.protocol = NETWORK_TCP,
        .address = ends->destination,
        .port = ends->destination_port,
        .descriptors = CONN_DESCRIPTORS};
    struct record_ref ref;
    bool is_by_name;
    if (is_known(b, syn))
        return;
    enum admission admission = box_admit(b, &what, &ref, &is_by_name);
    if (admission == ADMIT_DENIED) {
        deny(b, syn, ref.key.reason);
        return;
    }
    struct conn *c = add(b, syn);
    c->ref = ref;
    c->to = ends->destination;
    c->is_by_name = is_by_name;
    c->possible = secrets_possible(b, &ends->destination, ends->destination_port);
    if (admission == ADMIT_ASK)
        hold(c);
    else
        begin(c);
}

void tcp_retry(struct conn *c)
{
    const struct packet_syn syn = c->syn;
    struct box *b = c->box;
    c->question = NULL;
    tcp_end(c, false);
    attempt(b, &syn);
}

enum served tcp_serve_reports(struct source *s)
{
    struct box *b = s->owner;
    uint8_t *buffer = b->egress->buffer;
    for (int i = 0; i < REPORTS && b->turn_left > 0; i++) {
        const uint8_t *packet;
        size_t len;
        ssize_t n = recv(s->fd, buffer, REPORT_ROOM, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            s->is_readable = false;
            return SERVED_ALL;
        }
        if (n < 0)
            continue; /* ENOBUFS: reports were lost, and the box asks again */
        const uint8_t *at = buffer;
        size_t left = (size_t)n;
        while (packet_next_report(&at, &left, &packet, &len)) {
            struct packet_syn syn;
            b->turn_left -= STEP_COST;
            if (packet_parse_syn(&syn, packet, len) == 0)
                attempt(b, &syn);
        }
    }
    return SERVED_MORE;
}

/* --- the box's side */

static bool read_ends(int fd, const struct sockaddr_storage *peer, struct packet_ends *ret)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    *ret = (struct packet_ends){0};
    return getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
           sockaddr_read(peer, &ret->source, &ret->source_port) &&
           sockaddr_read(&own, &ret->destination, &ret->destination_port);
}

static void take_accepted(struct box *b, int fd, const struct sockaddr_storage *peer)
{
    const int on = 1;
    struct packet_ends ends;
    struct conn *c = read_ends(fd, peer, &ends) ? find(b, &ends) : NULL;
    tcp_set_abrupt(fd, true);
    if (!c || c->state != CONN_WAITING) { /* the box does not wait any more */
        (void)close(fd);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->inside.fd = fd;
    if (loop_add(b->egress, &c->inside) < 0) {
        tcp_end(c, true);
        return;
    }
    if (ends.destination_port == DNS_PORT) {
        c->state = CONN_ASKING;
        c->deadline_ms = b->egress->now_ms + QUESTION_MS;
    } else {
        relay_begin(c);
    }
}

enum served tcp_serve_listener(struct source *s)
{
    struct box *b = s->owner;
    while (b->turn_left > 0) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer);
        int fd = accept4(s->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno == EAGAIN) {
            s->is_readable = false;
            return SERVED_ALL;
        }
        if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
            return SERVED_STARVED; /* no descriptor, no memory: look again in a moment */
        b->turn_left -= STEP_COST;
        if (fd >= 0)
            take_accepted(b, fd, &peer);
    }
    return SERVED_MORE;
}

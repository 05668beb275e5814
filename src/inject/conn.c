/* SPDX-License-Identifier: Apache-2.0 */

/* One connection. Both handshakes run at the same time; the server's certificate is checked
 * before a byte of a request goes out. What one side sends waits in a small buffer until the
 * other has taken it, so a slow side slows down the other. */

#include "inject/inject.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PIECE = 16 << 10,       /* read at once: a record of TLS */
    WAITING_MAX = 64 << 10, /* bytes for one side; while there are more, the other waits */
    ROUNDS = 16,            /* before the next connection has its turn */
    HANDSHAKE_MS = 15000,
    IDLE_MS = 600000,
    LEAVING_MS = 2000, /* for the box to read the last answer */
};

/* --- TLS */

static const char *const versions = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

static int open_session(
    struct side *s, unsigned role, gnutls_certificate_credentials_t credentials)
{
    static const gnutls_datum_t http = {(unsigned char *)"http/1.1", 8};
    unsigned flags = role | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS;
    if (gnutls_init(&s->session, flags) < 0)
        return -ENOMEM;
    if (gnutls_priority_set_direct(s->session, versions, NULL) < 0 ||
        gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, credentials) < 0 ||
        gnutls_alpn_set_protocols(
            s->session, &http, 1, role == GNUTLS_SERVER ? GNUTLS_ALPN_MANDATORY : 0) < 0)
        return -EINVAL;
    gnutls_transport_set_int(s->session, s->fd);
    return 0;
}

static int open_sessions(struct conn *c, const struct secret *secret)
{
    int r = open_session(&c->box, GNUTLS_SERVER, secret->to_box);
    if (r == 0)
        r = open_session(&c->server, GNUTLS_CLIENT, secret->to_server);
    if (r == 0 && gnutls_server_name_set(c->server.session, GNUTLS_NAME_DNS, secret->host,
                      strlen(secret->host)) < 0)
        r = -EINVAL;
    if (r == 0)
        gnutls_session_set_verify_cert(c->server.session, secret->host, 0);
    return r;
}

static bool must_wait(ssize_t r)
{
    return r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
}

/* Returns 1 when it is done, 0 when it waits, -EPROTO when it has failed. */
static int shake(struct side *s)
{
    if (s->is_open)
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        int r = gnutls_handshake(s->session);
        if (r == GNUTLS_E_SUCCESS) {
            s->is_open = true;
            return 1;
        }
        if (must_wait(r))
            return 0;
        if (gnutls_error_is_fatal(r)) {
            (void)gnutls_alert_send_appropriate(s->session, r);
            return -EPROTO;
        }
    }
    return -EPROTO;
}

/* Egress has looked at the server name already; this checks the name that the TLS library
 * has read. */
static bool is_for_host(const struct conn *c)
{
    char name[NETWORK_NAME];
    size_t len = sizeof(name);
    unsigned type;
    return gnutls_server_name_get(c->box.session, name, &len, &type, 0) == 0 &&
           type == GNUTLS_NAME_DNS && strcasecmp(name, c->rule.host) == 0;
}

/* --- buffers */

static void consume(struct buf *b, size_t len)
{
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
    b->data[b->len] = '\0';
}

static size_t waiting(const struct side *s)
{
    return s->out.len - s->out_at;
}

static void forget_waiting(struct side *s)
{
    explicit_bzero(s->out.data, s->out.len); /* it may hold a value */
    buf_clear(&s->out);
    s->out_at = s->sending = 0;
}

/* Sends what waits. Returns 1 after progress, 0 without, -EPIPE when the peer is gone. */
static int flush(struct side *s)
{
    bool has_sent = false;
    while (s->is_open && waiting(s)) {
        size_t size = waiting(s) < PIECE ? waiting(s) : PIECE;
        ssize_t n = s->sending ? gnutls_record_send(s->session, NULL, 0)
                               : gnutls_record_send(s->session, s->out.data + s->out_at, size);
        if (n < 0 && must_wait(n)) {
            s->sending = s->sending ? s->sending : size;
            return has_sent;
        }
        s->sending = 0;
        if (n <= 0)
            return -EPIPE;
        s->out_at += (size_t)n;
        has_sent = true;
    }
    if (s->out_at && waiting(s) == 0)
        forget_waiting(s);
    return has_sent;
}

/* Appends the next piece. Returns its length, or 0 when no piece is there now. Sets has_ended
 * at the end of the stream, and *ret_is_clean when the peer sent close_notify. */
static size_t fill(struct side *s, bool *ret_is_clean)
{
    char piece[PIECE];
    ssize_t n = gnutls_record_recv(s->session, piece, sizeof(piece));
    *ret_is_clean = n == 0;
    if (n < 0 && (must_wait(n) || !gnutls_error_is_fatal((int)n)) && n != GNUTLS_E_REHANDSHAKE)
        return 0;
    if (n <= 0 || buf_append(&s->in, piece, (size_t)n) < 0) {
        s->has_ended = true;
        return 0;
    }
    return (size_t)n;
}

/* --- the loop of one connection */

/* Moves bytes of the box. Returns 1 after progress, 0 without, or negative errno. */
static int move_request(struct conn *c)
{
    struct side *s = &c->box;
    size_t taken = 0;
    bool is_clean;
    if (!exchange_wants_request(&c->exchange) || waiting(&c->server) > WAITING_MAX)
        return 0;
    if (s->in.len) {
        int r = exchange_request(
            &c->exchange, s->in.data, s->in.len, &c->server.out, &c->box.out, &taken);
        if (r < 0)
            return r;
        consume(&s->in, taken);
    }
    if (taken || c->exchange.is_over)
        return 1;
    if (!s->has_ended)
        return fill(s, &is_clean) > 0 || s->has_ended;
    if (exchange_is_idle(&c->exchange) && s->in.len == 0)
        c->exchange.is_over = true;
    else
        c->exchange.is_over = c->exchange.is_cut = true; /* half a request */
    return 1;
}

/* The same for bytes of the server. */
static int move_answer(struct conn *c)
{
    struct side *s = &c->server;
    size_t taken = 0;
    bool is_clean;
    if (c->exchange.is_over || s->has_ended || waiting(&c->box) > WAITING_MAX)
        return 0;
    if (s->in.len) {
        int r = exchange_answer(&c->exchange, s->in.data, s->in.len, &c->box.out, &taken);
        if (r < 0)
            return r;
        consume(&s->in, taken);
        if (taken || c->exchange.is_over)
            return 1;
    }
    bool has_more = fill(s, &is_clean) > 0;
    if (!s->has_ended)
        return has_more;
    int r = exchange_answer_end(&c->exchange, is_clean, &c->box.out);
    return r < 0 ? r : 1;
}

/* Returns whether anything moved; a connection that cannot go on is dead. */
static bool pump(struct conn *c)
{
    int results[] = {flush(&c->server), flush(&c->box), 0, 0};
    if (results[0] < 0) {
        exchange_fail(&c->exchange, &c->box.out);
        forget_waiting(&c->server); /* otherwise it would fail again in every round */
        results[0] = 1;
    }
    results[2] = move_request(c);
    if (c->server.is_open)
        results[3] = move_answer(c);
    bool has_moved = false;
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i] < 0) {
            conn_kill(c);
            return false;
        }
        has_moved = has_moved || results[i] > 0;
    }
    return has_moved;
}

/* The exchange is over: ends the stream to the box, and gives the box time to read the rest. */
static void leave(struct conn *c)
{
    if (c->exchange.is_cut) {
        conn_kill(c);
        return;
    }
    (void)gnutls_bye(c->box.session, GNUTLS_SHUT_WR);
    (void)shutdown(c->box.fd, SHUT_WR);
    c->is_leaving = true;
    c->deadline_ms = c->inject->now_ms + LEAVING_MS;
}

static void drain(struct conn *c)
{
    char piece[PIECE];
    for (int i = 0; i < ROUNDS; i++) {
        ssize_t n = recv(c->box.fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            conn_kill(c);
            return;
        }
        if (n < 0)
            return;
    }
}

static void watch(struct side *s, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = s};
    if (s->is_gone || events == s->watched)
        return;
    if (epoll_ctl(s->conn->inject->epoll_fd, EPOLL_CTL_MOD, s->fd, &event) == 0)
        s->watched = events;
}

/* The events that a side waits for. During a handshake gnutls knows whether it reads or
 * writes. */
static uint32_t events_of(const struct side *s, bool wants_read)
{
    if (!s->is_open)
        return gnutls_record_get_direction(s->session) ? EPOLLOUT : EPOLLIN;
    return (wants_read ? EPOLLIN : 0u) | (waiting(s) ? EPOLLOUT : 0u);
}

static void watch_both(struct conn *c)
{
    bool box = c->is_leaving || (!c->box.has_ended && exchange_wants_request(&c->exchange) &&
                                    waiting(&c->server) <= WAITING_MAX);
    bool server = !c->server.has_ended && waiting(&c->box) <= WAITING_MAX;
    watch(&c->box, events_of(&c->box, box));
    watch(&c->server, c->exchange.is_over ? 0 : events_of(&c->server, server));
}

/* No one is left to receive an answer. A request that is complete still goes out. */
static bool is_forsaken(const struct conn *c)
{
    bool is_asked = c->box.has_ended || !exchange_wants_request(&c->exchange);
    return c->box.is_gone && (c->exchange.is_over || (is_asked && !waiting(&c->server)));
}

static void begin(struct conn *c)
{
    bool was_open = c->box.is_open;
    int box = shake(&c->box);
    if (box < 0 || (!was_open && box == 1 && !is_for_host(c))) {
        conn_kill(c);
        return;
    }
    if (!c->exchange.is_over && shake(&c->server) < 0)
        exchange_fail(&c->exchange, &c->box.out);
}

void conn_serve(struct conn *c)
{
    if (c->is_dead)
        return;
    if (c->is_leaving) {
        drain(c);
        return;
    }
    begin(c);
    int rounds = 0;
    while (rounds < ROUNDS && !c->is_dead && c->box.is_open && pump(c))
        rounds++;
    if (c->is_dead)
        return;
    bool has_moved = rounds > 0;
    c->has_more = rounds == ROUNDS;
    if (is_forsaken(c)) {
        conn_kill(c);
        return;
    }
    if (has_moved && c->server.is_open)
        c->deadline_ms = c->inject->now_ms + IDLE_MS;
    if (c->exchange.is_over && c->box.is_open && waiting(&c->box) == 0)
        leave(c);
    if (!c->is_dead)
        watch_both(c);
}

static void unwatch(struct side *s)
{
    if (!s->is_gone)
        (void)epoll_ctl(s->conn->inject->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    s->is_gone = true;
}

void conn_hung_up(struct side *s)
{
    if (s->is_gone)
        return;
    unwatch(s); /* otherwise epoll would report it again and again */
    if (s == &s->conn->box && !s->is_open)
        conn_kill(s->conn);
}

/* --- life */

static void side_init(struct side *s, struct conn *c, int fd)
{
    *s = (struct side){.conn = c, .fd = fd, .watched = EPOLLIN | EPOLLOUT};
    buf_init(&s->in, 64 << 10);
    buf_init(&s->out, 1 << 20);
}

static int side_add(struct side *s)
{
    struct epoll_event event = {.events = s->watched, .data.ptr = s};
    return epoll_ctl(s->conn->inject->epoll_fd, EPOLL_CTL_ADD, s->fd, &event) < 0 ? -errno : 0;
}

int conn_new(struct inject *inject, uint32_t secrets, int box_fd, int server_fd)
{
    const struct secret *secret;
    struct conn *c = xcalloc(1, sizeof(*c));
    c->inject = inject;
    inject->conn_count++;
    c->deadline_ms = inject->now_ms + HANDSHAKE_MS;
    side_init(&c->box, c, box_fd);
    side_init(&c->server, c, server_fd);
    int r = table_rule(&inject->table, secrets, &c->rule, &secret);
    exchange_init(&c->exchange, &c->rule);
    if (r == 0)
        r = open_sessions(c, secret);
    if (r == 0)
        r = side_add(&c->box);
    if (r == 0)
        r = side_add(&c->server);
    TAILQ_INSERT_TAIL(&inject->conns, c, entry);
    if (r < 0)
        conn_kill(c);
    return r;
}

void conn_kill(struct conn *c)
{
    if (c->is_dead)
        return;
    c->is_dead = true;
    unwatch(&c->box); /* closing is not enough, if egress has kept a copy of the descriptor */
    unwatch(&c->server);
    (void)close(c->box.fd);
    (void)close(c->server.fd);
    TAILQ_REMOVE(&c->inject->conns, c, entry);
    TAILQ_INSERT_TAIL(&c->inject->dead, c, entry);
}

static void side_done(struct side *s)
{
    if (s->session)
        gnutls_deinit(s->session);
    if (s->out.data)
        explicit_bzero(s->out.data, s->out.len);
    buf_done(&s->in);
    buf_done(&s->out);
}

void conn_free(struct conn *c)
{
    c->inject->conn_count--;
    side_done(&c->box);
    side_done(&c->server);
    exchange_done(&c->exchange);
    free(c);
}

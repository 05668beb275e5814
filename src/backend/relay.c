/* SPDX-License-Identifier: Apache-2.0 */

/* See backend.h. One thread, one poll(). When the connection is cut, the bytes on both sides
 * are kept and the far shell is joined again; nothing is sent that it has already received. */

#include "backend/relay.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "proto/far.h"
#include "proto/place_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONFIRM_STEP = 64 << 10, /* received bytes after which they are confirmed */
    END_MS = 2000,           /* for the last frame, which ends the far shell */
    GREET_MS = 10000,        /* for one line */
    RETRY_FIRST_MS = 200,
    RETRY_MAX_MS = 3000,
    TO_MAX = 40 << 20,
};

void relay_event(const struct relay *r, struct spawn_event event)
{
    (void)send(r->socket, &event, sizeof(event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Tells the server a state of the place, and why. */
static void tell(const struct relay *r, uint32_t kind, uint32_t flags)
{
    struct place_event e = {
        .event = {.kind = kind, .flags = flags, .wait_status = (int32_t)r->b->refused}};
    (void)snprintf(e.words, sizeof(e.words), "%s", r->b->words);
    (void)send(r->socket, &e, sizeof(e), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void fail(struct relay *r, uint32_t kind, uint32_t flags)
{
    tell(r, kind, flags);
    r->is_over = true;
}

int relay_confirm(struct relay *r, uint64_t count)
{
    if (count > r->to_base + r->to.len)
        return -EPROTO;
    if (count <= r->to_base)
        return 0; /* said twice */
    size_t gone = (size_t)(count - r->to_base);
    r->to.len -= gone;
    memmove(r->to.data, r->to.data + gone, r->to.len);
    r->to_base = count;
    r->to_at = r->to_at > gone ? r->to_at - gone : 0;
    return 0;
}

/* Sends the number of bytes that we have received. From now on the bytes that the far shell
 * lacks are sent. */
static int greet(struct relay *r, uint64_t has)
{
    char line[24];
    int n = snprintf(line, sizeof(line), "%llu\n", (unsigned long long)r->received);
    (void)backend_fail(r->b, PLACE_UNREACHABLE, "the far shell does not take its first line");
    if (has < r->to_base || relay_confirm(r, has) < 0) {
        (void)backend_fail(r->b, PLACE_UNREACHABLE,
            "the place has counted bytes that were not sent, or has lost some");
        return -EPROTO;
    }
    r->to_at = 0;
    r->told = r->received;
    r->heard_ms = clock_ms();
    return backend_send(r->b, &r->stream, line, (size_t)n, clock_ms() + GREET_MS);
}

static void write_stream(struct relay *r)
{
    while (r->stream.out_fd >= 0 && r->to_at < r->to.len) {
        ssize_t n = write(r->stream.out_fd, r->to.data + r->to_at, r->to.len - r->to_at);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            close_fd(&r->stream.out_fd); /* the end shows when it is read, which may be later */
        if (n <= 0)
            break;
        r->to_at += (size_t)n;
    }
    if (!r->b->row->reconnect_s && r->to_at == r->to.len)
        (void)relay_confirm(r, r->to_base + r->to.len);
}

/* False at the end of the connection. */
static bool read_stream(struct relay *r)
{
    ssize_t n = backend_read(&r->stream, r->piece, sizeof(r->piece));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    r->heard_ms = clock_ms();
    r->piece_at = 0;
    r->piece_len = (size_t)n;
    r->received += (uint64_t)n;
    if (r->b->row->reconnect_s && r->received - r->told >= CONFIRM_STEP) {
        char text[24];
        int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)r->received);
        relay_own(r, "ack", text, (size_t)len);
        r->told = r->received;
    }
    return true;
}

static bool server_is_gone(const struct relay *r, int wait_ms)
{
    struct pollfd fd = {r->socket, 0, 0};
    return poll(&fd, 1, wait_ms) > 0 && fd.revents;
}

static uint64_t silent_ms(const struct relay *r)
{
    return (uint64_t)far_silent_s(r->b->row->reconnect_s) * 1000;
}

static bool is_silent(const struct relay *r)
{
    return r->b->row->reconnect_s && clock_ms() - r->heard_ms >= silent_ms(r);
}

/* Sets the words to the cause of the stream's end, as far as it is known. */
static void explain_cut(struct relay *r)
{
    const struct backend_ops *ops = backend_ops_of(r->b->row->kind);
    char quoted[PLACE_SAYS / 2];
    if (ops->why && ops->why(r->b))
        return;
    if (is_silent(r)) {
        (void)backend_fail(r->b, PLACE_UNREACHABLE, "the place has sent nothing for %llu s",
            (unsigned long long)(silent_ms(r) / 1000));
        return;
    }
    const char *line = backend_last_line(&r->stream);
    place_quote(quoted, sizeof(quoted), line);
    (void)backend_fail(r->b, PLACE_UNREACHABLE, "the connection was cut%s%s",
        line[0] ? "; the last words of its client: " : "", line[0] ? quoted : "");
}

/* One attempt; its words tell the server why the place is still degraded. */
static enum place_error try_again(struct relay *r)
{
    char before[PLACE_SAYS];
    uint64_t has = 0;
    (void)snprintf(before, sizeof(before), "%s", r->b->words);
    enum place_error error = backend_open(r->b, true, &r->stream, &has);
    if (error == PLACE_FINE && greet(r, has) < 0)
        error = PLACE_UNREACHABLE;
    if (error)
        backend_stream_close(&r->stream);
    if (!error)
        r->b->words[0] = '\0';
    if (error != PLACE_LOST && !str_eq(before, r->b->words))
        tell(r, EVENT_PLACE, error ? PLACE_DEGRADED : PLACE_READY);
    return error;
}

/* The connection was cut: joins the far shell again, as long as it waits for us. */
static void rejoin(struct relay *r)
{
    const uint32_t reconnect_s = r->b->row->reconnect_s;
    uint64_t until_ms = clock_ms() + (uint64_t)reconnect_s * 1000;
    int pause_ms = RETRY_FIRST_MS;
    enum place_error error = PLACE_UNREACHABLE;
    while (clock_ms() < until_ms && error != PLACE_LOST) {
        error = try_again(r);
        if (error == PLACE_FINE)
            return;
        if (server_is_gone(r, error == PLACE_LOST ? 0 : pause_ms)) {
            r->is_over = true;
            return;
        }
        pause_ms = pause_ms * 2 < RETRY_MAX_MS ? pause_ms * 2 : RETRY_MAX_MS;
    }
    if (error != PLACE_LOST)
        (void)backend_fail(r->b, error, "the shell could not be joined again within %u s: %s",
            reconnect_s, r->b->words);
    fail(r, EVENT_PLACE, PLACE_GONE);
}

static void on_cut(struct relay *r)
{
    explain_cut(r);
    if (!r->b->row->reconnect_s) {
        fail(r, EVENT_PLACE, PLACE_GONE);
        return;
    }
    backend_stream_close(&r->stream);
    tell(r, EVENT_PLACE, PLACE_DEGRADED);
    rejoin(r);
}

/* Shows the far shell that the connection is there. Its answer shows us the same: the silence
 * does not count while no question is sent or no answer is read. Returns how long poll() may
 * wait. */
static int ping(struct relay *r, bool reads)
{
    uint64_t now = clock_ms();
    bool asks = r->to_at == r->to.len && !relay_is_full(r);
    if (!r->b->row->reconnect_s)
        return -1; /* the far shell ends with its stream */
    if (!asks || !reads)
        r->heard_ms = now;
    if (now >= r->ping_ms) {
        if (asks)
            relay_own(r, "ping", NULL, 0);
        r->ping_ms = now + silent_ms(r) / 4;
    }
    return (int)(r->ping_ms - now);
}

enum { W_SOCKET, W_CHANNEL, W_IN, W_OUT, W_ERR, W_TAKER, W_HELPERS };

static void poll_once(struct relay *r, int taker)
{
    int wait_ms = ping(r, taker < 0);
    bool is_full = relay_is_full(r);
    bool sends = r->to_at < r->to.len;
    /* Nothing is read while a client does not take its file. The end shows all the same, and
     * what was not read comes again after a cut. */
    short in = taker < 0 ? POLLIN : r->helper ? POLLRDHUP : 0;
    struct pollfd fds[W_HELPERS + RELAY_HELPERS] = {
        [W_SOCKET] = {r->socket, POLLIN, 0},
        [W_CHANNEL] = {is_full ? -1 : r->channel, POLLIN, 0},
        [W_IN] = {in ? r->stream.in_fd : -1, in, 0},
        [W_OUT] = {sends ? r->stream.out_fd : -1, POLLOUT, 0},
        [W_ERR] = {r->stream.err_fd, POLLIN, 0},
        [W_TAKER] = {taker, POLLOUT, 0},
    };
    for (int i = 0; i < RELAY_HELPERS; i++)
        fds[W_HELPERS + i] =
            (struct pollfd){!is_full && r->helpers[i].id ? r->helpers[i].fd : -1, POLLIN, 0};
    if (poll(fds, W_HELPERS + RELAY_HELPERS, wait_ms) < 0)
        return;
    if (fds[W_SOCKET].revents)
        relay_command(r);
    if (fds[W_CHANNEL].revents && relay_channel(r) < 0)
        r->is_over = true;
    for (int i = 0; i < RELAY_HELPERS; i++) {
        if (fds[W_HELPERS + i].revents && r->helpers[i].id)
            relay_helper_read(r, &r->helpers[i]);
    }
    if (fds[W_ERR].revents)
        backend_listen(&r->stream);
    bool has_ended = fds[W_IN].revents && (taker >= 0 || !read_stream(r));
    if (!r->is_over && (has_ended || is_silent(r)))
        on_cut(r);
}

static void serve(struct relay *r)
{
    int taker = -1;
    while (!r->is_over) {
        poll_once(r, taker);
        if (!r->is_over && relay_take(r, &taker) < 0) {
            (void)backend_fail(
                r->b, PLACE_LOST, "the place sent something that the far shell does not send");
            fail(r, EVENT_PLACE, PLACE_GONE);
        }
        write_stream(r);
    }
}

/* Says the last word, if it can be said soon. */
static void say_end(struct relay *r)
{
    uint64_t until_ms = clock_ms() + END_MS;
    if (r->stream.out_fd < 0)
        return; /* the far shell ends itself after its grace time */
    r->is_over = false;
    relay_complete(r);
    relay_own(r, "end", NULL, 0);
    while (r->to_at < r->to.len && clock_ms() < until_ms) {
        struct pollfd room = {r->stream.out_fd, POLLOUT, 0};
        if (poll(&room, 1, 100) < 0 || room.revents & (POLLERR | POLLHUP))
            return;
        write_stream(r);
    }
}

void backend_answer_probe(struct backend *b, int fds[PLACE_FDS])
{
    const struct backend_ops *ops = backend_ops_of(b->row->kind);
    struct relay r = {.b = b, .socket = fds[PLACE_SOCKET]};
    b->watch_fd = r.socket;
    enum place_error error = ops && ops->probe ? ops->probe(b) : PLACE_FINE;
    if (error)
        fail(&r, EVENT_FAILED, error);
    else
        relay_event(&r, (struct spawn_event){.kind = EVENT_STARTED});
}

/* Checks the key again: a server that was taken over may have left out its own check. */
static enum place_error take_words(struct relay *r, int fd)
{
    struct backend *b = r->b;
    if (place_words_take(fd, &r->words) < 0)
        return backend_fail(b, PLACE_REFUSED, "the request for the place is not valid");
    backend_take_request(b, (const struct place_head *)r->words.data);
    return str_list_covers(b->row->keys, b->request.owner)
               ? PLACE_FINE
               : backend_fail(b, PLACE_REFUSED, "the backend is not for this key");
}

void backend_relay(struct backend *b, int fds[PLACE_FDS])
{
    struct relay *r = xcalloc(1, sizeof(*r));
    uint64_t has = 0;
    *r = (struct relay){.b = b,
        .socket = fds[PLACE_SOCKET],
        .out = fds[PLACE_OUT],
        .err = fds[PLACE_ERR],
        .channel = fds[PLACE_CHANNEL]};
    for (int i = PLACE_SOCKET; i < PLACE_FDS; i++)
        (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
    backend_stream_init(&r->stream);
    buf_init(&r->words, PLACE_WORDS_MAX);
    buf_init(&r->to, TO_MAX);
    buf_init(&r->own, TO_MAX);
    b->watch_fd = r->socket;
    enum place_error error = take_words(r, fds[PLACE_WORDS]);
    if (error == PLACE_FINE)
        error = backend_open(b, false, &r->stream, &has);
    if (error == PLACE_FINE && greet(r, has) < 0)
        error = PLACE_UNREACHABLE;
    if (error) {
        fail(r, EVENT_FAILED, error);
    } else {
        relay_event(r, (struct spawn_event){.kind = EVENT_STARTED, .flags = b->in_force});
        relay_start(r);
        write_stream(r);
        serve(r);
        say_end(r);
    }
    backend_stream_close(&r->stream);
    backend_close(b);
}

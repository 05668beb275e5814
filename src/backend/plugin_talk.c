/* SPDX-License-Identifier: Apache-2.0 */

/* The conversation with a plug-in. One poll() for both sides: the relay, which reads and writes
 * bytes, and the plug-in, which reads and writes frames. Runs in a process of its own, so that
 * the relay sees pipes as of any other client. SIGTERM says that the session is over, and the
 * place is closed; killed, it leaves the place as it is. */

#include "backend/plugin.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    LAST_MS = 300,      /* for the plug-in's last words, after its end */
    LAST_MAX_MS = 3000, /* for all of them: a process that it has left may go on writing */
    END_MS = 2000,      /* from the end of its stdin to the end of the plug-in */
    PIECE = 64 << 10,
    WAITING = 256 << 10, /* a side is not read while so many bytes wait */
};

struct talk {
    const struct plugin_order *order;
    struct backend_stream plugin;
    int from_relay, to_relay; /* -1: ended */
    int term_fd;
    bool is_over;   /* SIGTERM came */
    bool is_opened; /* there is a place to close */
    bool is_gone;   /* nothing more is sent to the plug-in: it has ended or failed */
    struct plugin_reader reader;
    struct plugin_ready ready;
    struct buf up, down; /* frames for the plug-in, bytes for the relay */
    char piece[PIECE];   /* of the plug-in's stdout */
    size_t piece_at, piece_len;
    struct buf log; /* the end of its stderr */
    struct plugin_verdict *verdict;
};

static enum place_error fail(struct talk *t, enum place_error error, const char *words)
{
    if (!t->verdict->error) {
        (void)snprintf(t->verdict->words, sizeof(t->verdict->words), "%s", words);
        t->verdict->error = error;
    }
    return error;
}

static enum place_error broken(struct talk *t)
{
    char words[PLUGIN_WORDS];
    (void)snprintf(
        words, sizeof(words), "the plug-in broke the protocol: %s", t->reader.problem);
    t->is_gone = true;
    return fail(t, PLACE_LOST, words);
}

/* The plug-in has ended without a message: its log may have the cause. */
static enum place_error ended(struct talk *t)
{
    char *text = t->log.data;
    size_t len = t->log.len;
    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        text[--len] = '\0';
    const char *line = len ? strrchr(text, '\n') : NULL;
    char words[PLUGIN_WORDS], said[PLUGIN_WORDS - sizeof("the plug-in ended: ")] = "";
    if (len)
        place_quote(said, sizeof(said), line ? line + 1 : text);
    (void)snprintf(words, sizeof(words), "the plug-in ended%s%s", len ? ": " : "", said);
    t->is_gone = true;
    return fail(t, PLACE_UNREACHABLE, words);
}

static void keep_log(struct talk *t)
{
    char bytes[4096];
    ssize_t n = read(t->plugin.err_fd, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_fd(&t->plugin.err_fd);
    if (n <= 0)
        return;
    if (t->log.len + (size_t)n > t->log.max) {
        size_t gone = t->log.len + (size_t)n - t->log.max;
        t->log.len -= gone;
        memmove(t->log.data, t->log.data + gone, t->log.len);
    }
    (void)buf_append(&t->log, bytes, (size_t)n);
}

static void keep_last_words(struct talk *t)
{
    uint64_t until_ms = clock_ms() + LAST_MAX_MS;
    while (t->plugin.err_fd >= 0 && clock_ms() < until_ms &&
           poll(&(struct pollfd){t->plugin.err_fd, POLLIN, 0}, 1, LAST_MS) > 0)
        keep_log(t);
}

/* Writes as much of the buffer as possible. False when the reader is gone. */
static bool drain(struct buf *b, int fd)
{
    ssize_t n = fd >= 0 && b->len ? write(fd, b->data, b->len) : 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    b->len -= (size_t)n;
    memmove(b->data, b->data + n, b->len);
    return true;
}

static void send_frame(struct talk *t, const char *kind, const void *data, size_t len)
{
    if (buf_printf(&t->up, "%s %zu\n", kind, len) < 0 ||
        (len && buf_append(&t->up, data, len) < 0))
        (void)fail(t, PLACE_UNREACHABLE, "there is no memory for a frame");
}

static void ask(struct talk *t, const char *kind, json_t *json, enum plugin_kind awaited)
{
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    send_frame(t, kind, text ? text : "{}", text ? strlen(text) : 2);
    t->reader.awaited = awaited;
}

static void take_relay(struct talk *t)
{
    char bytes[PIECE];
    ssize_t n = read(t->from_relay, bytes, sizeof(bytes));
    if (n > 0)
        send_frame(t, "data", bytes, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_fd(&t->from_relay);
        if (t->reader.is_streaming)
            send_frame(t, "eof", NULL, 0);
    }
}

/* Takes received frames up to the first complete one that is not `data`. */
static enum place_error take_frames(struct talk *t, enum plugin_kind *ret)
{
    *ret = PLUGIN_NONE;
    while (t->piece_at < t->piece_len && *ret == PLUGIN_NONE && t->down.len < WAITING) {
        const char *bytes;
        size_t len;
        enum plugin_kind kind;
        ssize_t n = plugin_read(&t->reader, t->piece + t->piece_at, t->piece_len - t->piece_at,
            &kind, &bytes, &len);
        if (n < 0)
            return broken(t);
        t->piece_at += (size_t)n;
        if (kind == PLUGIN_DATA && t->to_relay >= 0 && buf_append(&t->down, bytes, len) < 0)
            return fail(t, PLACE_UNREACHABLE, "there is no memory for bytes of the place");
        if (kind != PLUGIN_DATA)
            *ret = kind;
    }
    return PLACE_FINE;
}

enum { W_PLUGIN_IN, W_PLUGIN_OUT, W_PLUGIN_ERR, W_RELAY_IN, W_RELAY_OUT, W_TERM, W_COUNT };

/* Waits for one event and handles it. *ret: the kind of a whole frame, if one has come. */
static enum place_error turn(
    struct talk *t, uint64_t until_ms, bool is_pumping, enum plugin_kind *ret)
{
    enum place_error error = take_frames(t, ret);
    uint64_t now = clock_ms();
    if (error || *ret != PLUGIN_NONE)
        return error;
    if (now >= until_ms)
        return fail(t, PLACE_UNREACHABLE, "the plug-in did not answer in time");
    bool has_room = t->down.len < WAITING && t->piece_at == t->piece_len;
    bool takes = is_pumping && t->up.len < WAITING;
    struct pollfd fds[W_COUNT] = {
        [W_PLUGIN_IN] = {has_room ? t->plugin.in_fd : -1, POLLIN, 0},
        [W_PLUGIN_OUT] = {t->up.len ? t->plugin.out_fd : -1, POLLOUT, 0},
        [W_PLUGIN_ERR] = {t->plugin.err_fd, POLLIN, 0},
        [W_RELAY_IN] = {takes ? t->from_relay : -1, POLLIN, 0},
        [W_RELAY_OUT] = {t->down.len ? t->to_relay : -1, POLLOUT, 0},
        [W_TERM] = {t->is_over ? -1 : t->term_fd, POLLIN, 0},
    };
    if (poll(fds, W_COUNT, until_ms - now > 60000 ? 60000 : (int)(until_ms - now)) <= 0)
        return PLACE_FINE;
    t->is_over = t->is_over || fds[W_TERM].revents;
    if (fds[W_PLUGIN_ERR].revents)
        keep_log(t);
    if (fds[W_RELAY_IN].revents)
        take_relay(t);
    if (fds[W_RELAY_OUT].revents && !drain(&t->down, t->to_relay)) {
        close_fd(&t->to_relay);
        buf_clear(&t->down);
    }
    if (fds[W_PLUGIN_OUT].revents && !drain(&t->up, t->plugin.out_fd))
        close_fd(&t->plugin.out_fd); /* the end shows when it is read, which may be later */
    if (fds[W_PLUGIN_IN].revents) {
        ssize_t n = read(t->plugin.in_fd, t->piece, sizeof(t->piece));
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            keep_last_words(t);
            return ended(t);
        }
        t->piece_at = 0;
        t->piece_len = n > 0 ? (size_t)n : 0;
    }
    return PLACE_FINE;
}

/* Waits for the answer to the last request. */
static enum place_error answer(struct talk *t, uint64_t ms)
{
    enum plugin_kind got = PLUGIN_NONE;
    uint64_t until_ms = clock_ms() + ms;
    char words[PLUGIN_WORDS];
    while (t->reader.awaited != PLUGIN_NONE) {
        enum place_error error = turn(t, until_ms, false, &got);
        if (error)
            return error;
        if (got == PLUGIN_ERROR) {
            enum place_limit limit;
            error = plugin_parse_error(&t->reader.json, words, &limit);
            if (!t->verdict->error)
                t->verdict->limit = limit;
            return fail(t, error, words);
        }
    }
    return PLACE_FINE;
}

static enum place_error open_place(struct talk *t)
{
    const struct plugin_order *order = t->order;
    char words[PLUGIN_WORDS];
    bool is_resumed = false;
    enum place_error error = answer(t, PLUGIN_READY_MS);
    if (error)
        return error;
    if (plugin_parse_ready(&t->reader.json, &t->ready, words) < 0)
        return fail(t, PLACE_LOST, words);
    if ((error = order->check(order, &t->ready)))
        return error;
    ask(t, "open", order->request(order), PLUGIN_OPENED);
    if ((error = answer(t, order->open_ms)))
        return error;
    if (plugin_parse_opened(&t->reader.json, &is_resumed, words) < 0)
        return fail(t, PLACE_LOST, words);
    t->is_opened = true;
    if (order->is_again && !is_resumed)
        return fail(t, PLACE_LOST, "the place is gone, and the session's state with it");
    return PLACE_FINE;
}

/* Takes the script, which is the first line of the relay. False when there is no whole line. */
static bool take_script(struct talk *t, struct buf *script)
{
    for (;;) {
        char byte;
        struct pollfd fds[] = {{t->from_relay, POLLIN, 0}, {t->term_fd, POLLIN, 0}};
        ssize_t n = read(t->from_relay, &byte, 1);
        if (n == 1 && byte == '\n')
            return true;
        if (n == 0 || (n == 1 && buf_append(script, &byte, 1) < 0))
            return false;
        if (n < 0 && poll(fds, 2, -1) > 0 && fds[1].revents)
            return false;
    }
}

static enum place_error start_stream(struct talk *t)
{
    cleanup_buf struct buf script;
    buf_init(&script, PLUGIN_JSON_MAX / 2);
    t->order->opened(t->order);
    if (!take_script(t, &script))
        return PLACE_LOST;
    ask(t, "stream", json_pack("{s:[s,s,s]}", "argv", "/bin/sh", "-c", script.data), PLUGIN_OK);
    enum place_error error = answer(t, PLUGIN_STREAM_MS);
    t->reader.is_streaming = !error;
    return error;
}

/* Until the stream, the relay or the session ends. */
static void pump(struct talk *t)
{
    enum plugin_kind got;
    while (!t->is_over && t->from_relay >= 0 && t->reader.is_streaming) {
        if (turn(t, UINT64_MAX, true, &got))
            return;
    }
    for (uint64_t until_ms = clock_ms() + END_MS; t->down.len && clock_ms() < until_ms;) {
        struct pollfd room = {t->to_relay, POLLOUT, 0};
        if (t->to_relay < 0 || poll(&room, 1, 100) < 0 || !drain(&t->down, t->to_relay))
            return;
    }
}

/* The relay has seen the end. It sends SIGTERM when the session is over, or kills this process
 * and starts another one that joins the place again. */
static void await_word(struct talk *t)
{
    char bytes[4096];
    while (!t->is_over) {
        struct pollfd fds[] = {{t->from_relay, POLLIN, 0}, {t->term_fd, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            continue;
        t->is_over = fds[1].revents != 0;
        ssize_t n = fds[0].revents ? read(t->from_relay, bytes, sizeof(bytes)) : 1;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            close_fd(&t->from_relay);
    }
}

static void close_place(struct talk *t)
{
    await_word(t);
    if (!t->order->is_last(t->order))
        return;
    buf_clear(&t->down);
    ask(t, "close", json_pack("{s:b}", "destroy", t->order->destroys), PLUGIN_OK);
    (void)answer(t, PLUGIN_CLOSE_MS);
}

void plugin_talk(
    const struct plugin_order *order, struct backend_stream *plugin, int in, int out)
{
    sigset_t term;
    struct talk *t = xcalloc(1, sizeof(*t));
    *t = (struct talk){.order = order,
        .plugin = *plugin,
        .from_relay = in,
        .to_relay = out,
        .verdict = order->verdict};
    plugin_reader_init(&t->reader);
    buf_init(&t->up, WAITING + PLUGIN_JSON_MAX + 2 * PIECE);
    buf_init(&t->down, WAITING + PIECE);
    buf_init(&t->log, PLUGIN_LOG);
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    t->term_fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!open_place(t) && !start_stream(t))
        pump(t);
    close_fd(&t->to_relay); /* the verdict stands before the relay sees the end */
    if (t->is_opened && !t->is_gone)
        close_place(t);
    *plugin = t->plugin;
}

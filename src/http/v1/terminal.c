/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/sessions/{id}/pty: a terminal in a session, as a WebSocket. Both sides are untrusted:
 * the client, and the programs on the terminal. The server never blocks on either, and reads
 * from one only what the other has room for. So a connection holds a few pieces of data at
 * most.
 *
 * It runs on the connection's own thread. */

#include "session/terminal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/send.h"
#include "http/v1/sessions.h"
#include "http/v1/websocket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

enum {
    PIECE = 16 << 10,          /* bytes of output per message */
    INPUT_MAX = 16 << 10,      /* bytes; more than libwslay reads at a time */
    MESSAGE_MAX = 1 << 20,     /* bytes of a client's message, which is passed on in pieces */
    QUEUE_MAX = 16,            /* messages to the client, mostly pongs */
    LAST_OUTPUT_MAX = 1 << 20, /* bytes read after the shell has ended */
    TICK_MS = 250,             /* longest wait, so that deadlines are checked */
    TOUCH_MS = 1000,           /* shortest time between two calls of session_touch() */
    LAST_MS = 5000,            /* for the client to read the rest of the output */
    CLOSE_MS = 2000,           /* for the client to answer the close frame */
    REASON_MAX = 120,          /* bytes; a close frame has room for 123 */
};

struct talk {
    struct terminal *terminal;
    struct state *state;
    int fd;
    wslay_event_context_ptr ws;
    uint8_t frame; /* opcode of the current frame */
    bool is_text;  /* the current message is a text message */
    uint64_t message_len;
    char control[TERMINAL_CONTROL_MAX + 1];
    size_t control_len;
    char input[INPUT_MAX]; /* waits to be written to the terminal */
    size_t input_at, input_len;
    size_t last_bytes; /* bytes of output since the shell ended */
    struct terminal_silence silence;
    uint64_t touched_ms; /* when session_touch() was last called */
    uint64_t until_ms;   /* end of LAST_MS or CLOSE_MS; 0 before */
    bool is_broken;      /* the client is gone */
    bool is_silent;      /* no process has the terminal open now; it may be opened again */
    bool has_ended;      /* the shell has ended */
    bool is_told;        /* the client was sent its exit code */
    bool is_closing;
    int exit_code;
};

static bool has_input(const struct talk *t)
{
    return t->input_at < t->input_len;
}

/* Whether to read from the client: there is room for its input and for our answers. */
static bool is_listening(const struct talk *t)
{
    return !has_input(t) && wslay_event_get_queued_msg_count(t->ws) < QUEUE_MAX;
}

static void touch(struct talk *t)
{
    uint64_t now = clock_ms();
    if (now - t->touched_ms < TOUCH_MS)
        return;
    t->touched_ms = now;
    session_touch(t->terminal->s);
}

static void close_talk(struct talk *t, unsigned code, const char *reason)
{
    if (t->is_closing)
        return;
    t->is_closing = true;
    t->until_ms = clock_ms() + CLOSE_MS;
    (void)wslay_event_queue_close(
        t->ws, (uint16_t)code, (const uint8_t *)reason, strnlen(reason, REASON_MAX));
}

static ssize_t on_receive(
    wslay_event_context_ptr ws, uint8_t *to, size_t len, int flags, void *context)
{
    struct talk *t = context;
    ssize_t n = -1;
    errno = EAGAIN;
    if (is_listening(t))
        n = recv(t->fd, to, len, MSG_DONTWAIT);
    if (n > 0) {
        terminal_heard(&t->silence, clock_ms());
        return n;
    }
    t->is_broken = n == 0 || (errno != EAGAIN && errno != EINTR);
    wslay_event_set_error(ws, t->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t on_send(
    wslay_event_context_ptr ws, const uint8_t *data, size_t len, int flags, void *context)
{
    struct talk *t = context;
    int more = flags & WSLAY_MSG_MORE ? MSG_MORE : 0;
    ssize_t n = send(t->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL | more);
    if (n >= 0)
        return n;
    t->is_broken = errno != EAGAIN && errno != EINTR;
    wslay_event_set_error(ws, t->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static void on_frame(wslay_event_context_ptr ws,
    const struct wslay_event_on_frame_recv_start_arg *arg, void *context)
{
    struct talk *t = context;
    t->frame = arg->opcode;
    if (arg->opcode == WSLAY_TEXT_FRAME || arg->opcode == WSLAY_BINARY_FRAME) {
        t->is_text = arg->opcode == WSLAY_TEXT_FRAME;
        t->control_len = 0;
        t->message_len = 0;
    }
    /* Without buffering, libwslay checks the length of single frames only, not of messages. */
    if (!wslay_is_ctrl_frame(arg->opcode))
        t->message_len += arg->payload_length;
    if (t->message_len > MESSAGE_MAX)
        close_talk(t, WSLAY_CODE_MESSAGE_TOO_BIG, "a message is larger than 1 MiB");
}

static void on_chunk(wslay_event_context_ptr ws,
    const struct wslay_event_on_frame_recv_chunk_arg *arg, void *context)
{
    struct talk *t = context;
    bool is_data = !wslay_is_ctrl_frame(t->frame) && !t->is_closing && !t->has_ended;
    if (is_data && !t->is_text && arg->data_length <= sizeof(t->input) - t->input_len) {
        memcpy(t->input + t->input_len, arg->data, arg->data_length);
        t->input_len += arg->data_length;
        touch(t);
    } else if (is_data && !t->is_text) {
        t->is_broken = true; /* impossible: the server does not read while input is left */
    } else if (is_data) {
        size_t room = sizeof(t->control) - t->control_len;
        size_t len = arg->data_length < room ? arg->data_length : room;
        memcpy(t->control + t->control_len, arg->data, len);
        t->control_len += len;
    }
}

static void on_message(
    wslay_event_context_ptr ws, const struct wslay_event_on_msg_recv_arg *arg, void *context)
{
    struct talk *t = context;
    struct terminal_size size;
    struct err err = {0};
    if (arg->opcode != WSLAY_TEXT_FRAME || t->is_closing || t->has_ended)
        return;
    if (terminal_control_parse(t->control, t->control_len, &size, &err) == 0) {
        terminal_resize(t->terminal, size);
        return;
    }
    char reason[REASON_MAX + 1];
    (void)snprintf(reason, sizeof(reason), "%.16s%s%.100s", err.field, err.field[0] ? ": " : "",
        err.message);
    close_talk(t, WSLAY_CODE_POLICY_VIOLATION, reason);
}

static int queue(struct talk *t, uint8_t opcode, const char *data, size_t len)
{
    const struct wslay_event_msg message = {opcode, (const uint8_t *)data, len};
    return wslay_event_queue_msg(t->ws, &message);
}

/* Writes the client's input to the terminal as far as it accepts it. Input that it refuses for
 * good is lost, as on any closed terminal. */
static void pass_input(struct talk *t)
{
    while (has_input(t)) {
        ssize_t n =
            write(t->terminal->master, t->input + t->input_at, t->input_len - t->input_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        t->input_at = n > 0 ? t->input_at + (size_t)n : t->input_len;
    }
    t->input_at = t->input_len = 0;
}

/* The shell has ended and its output was read. Sends the exit code first and closes in a later
 * call: libwslay sends a close frame before all other messages. */
static void tell_end(struct talk *t)
{
    char text[64];
    int len =
        snprintf(text, sizeof(text), "{\"type\":\"exit\",\"exit_code\":%d}", t->exit_code);
    if (t->is_told) {
        close_talk(t, WSLAY_CODE_NORMAL_CLOSURE, "the shell has ended");
        return;
    }
    t->is_told = true;
    (void)queue(t, WSLAY_TEXT_FRAME, text, (size_t)len);
}

/* Reads a piece of output when the one before was sent. */
static void pass_output(struct talk *t)
{
    char bytes[PIECE];
    if (t->is_closing || wslay_event_get_queued_msg_count(t->ws) > 0)
        return;
    if (t->is_told) {
        tell_end(t);
        return;
    }
    ssize_t n = read(t->terminal->master, bytes, sizeof(bytes));
    t->is_silent = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0 && t->last_bytes < LAST_OUTPUT_MAX) {
        (void)queue(t, WSLAY_BINARY_FRAME, bytes, (size_t)n);
        t->last_bytes += t->has_ended ? (size_t)n : 0;
        touch(t);
    } else if (t->has_ended) {
        tell_end(t);
    }
}

static void keep_time(struct talk *t)
{
    uint64_t now = clock_ms();
    if (t->state->stopping)
        close_talk(t, WSLAY_CODE_GOING_AWAY, "the server stops");
    if (t->is_closing && now >= t->until_ms)
        t->is_broken = true;
    /* The client does not read the rest. */
    if (t->has_ended && !t->is_closing && now >= t->until_ms)
        close_talk(t, WSLAY_CODE_NORMAL_CLOSURE, "the shell has ended");
    enum terminal_verdict verdict = terminal_judge(&t->silence, is_listening(t), now);
    if (verdict == TERMINAL_GIVE_UP)
        t->is_broken = true;
    /* A message on its way to the client checks the connection as well as a ping does. */
    if (verdict == TERMINAL_PING && !t->is_closing &&
        wslay_event_get_queued_msg_count(t->ws) == 0)
        (void)queue(t, WSLAY_PING, "", 0);
}

/* Waits until the client, the terminal or the shell has something to handle. */
static void wait_for(struct talk *t)
{
    bool is_full = wslay_event_get_queued_msg_count(t->ws) > 0;
    short socket_events = (short)((is_listening(t) ? POLLIN : POLLRDHUP) |
                                  (wslay_event_want_write(t->ws) ? POLLOUT : 0));
    short master_events = (short)((is_full || t->is_closing || t->is_silent ? 0 : POLLIN) |
                                  (has_input(t) ? POLLOUT : 0));
    struct pollfd fds[] = {
        {.fd = t->fd, .events = socket_events},
        {.fd = master_events ? t->terminal->master : -1, .events = master_events},
        {.fd = t->has_ended ? -1 : t->terminal->socket, .events = POLLIN},
    };
    int n = poll(fds, 3, TICK_MS);
    t->is_silent = t->is_silent && n > 0; /* try again after each tick */
    if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP))
        t->is_broken = true;
    if (fds[1].revents & POLLHUP && !(fds[1].revents & POLLIN) && has_input(t))
        t->input_at = t->input_len; /* no process reads from the terminal any more */
    if (fds[2].revents && terminal_has_ended(t->terminal, &t->exit_code)) {
        t->has_ended = true;
        t->input_at = t->input_len = 0;
        t->until_ms = clock_ms() + LAST_MS;
    }
}

static bool goes_on(const struct talk *t)
{
    return !t->is_broken && (wslay_event_want_read(t->ws) || wslay_event_want_write(t->ws));
}

static void converse(struct talk *t)
{
    terminal_heard(&t->silence, clock_ms());
    while (goes_on(t)) {
        wait_for(t);
        if (!t->is_broken && wslay_event_recv(t->ws) < 0 && !t->is_broken) {
            /* Protocol violation: libwslay has queued a close frame. */
            (void)wslay_event_send(t->ws);
            break;
        }
        pass_input(t);
        pass_output(t);
        keep_time(t);
        if (!t->is_broken && wslay_event_send(t->ws) < 0)
            t->is_broken = true;
    }
    if (!t->is_broken && !wslay_event_get_close_received(t->ws))
        send_linger(t->fd);
}

/* For TCP connections. Without TCP_USER_TIMEOUT Linux would try for a quarter of an hour to
 * send to a client that vanished. It also detects that while the server does not read. */
static const struct {
    int name;
    int value;
} settings[] = {
    {TCP_NODELAY, 1}, /* a keystroke is a packet */
    {TCP_USER_TIMEOUT, TERMINAL_SILENT_MS},
};

static void serve(void *context, struct http_request *req, int fd)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_receive,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame,
        .on_frame_recv_chunk_callback = on_chunk,
        .on_msg_recv_callback = on_message};
    struct talk *t = xcalloc(1, sizeof(*t));
    *t = (struct talk){.terminal = context, .state = req->state, .fd = fd};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        (void)setsockopt(
            fd, IPPROTO_TCP, settings[i].name, &settings[i].value, sizeof(settings[i].value));
    if (wslay_event_context_server_init(&t->ws, &callbacks, t) == 0) {
        wslay_event_config_set_no_buffering(t->ws, 1);
        wslay_event_config_set_max_recv_msg_length(t->ws, MESSAGE_MAX);
        converse(t);
        wslay_event_context_free(t->ws);
    }
    free(t);
}

static void done(void *context)
{
    session_terminal_close(context);
}

static int get_side(
    const struct http_request *req, const char *name, unsigned *ret, struct err *err)
{
    const char *text = http_query(req, name);
    uint32_t value = 0;
    if (!text)
        return 0;
    return terminal_side(name, str_parse_u32(text, &value) < 0 ? 0 : value, ret, err);
}

int handle_session_terminal(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct terminal_size size = {TERMINAL_ROWS, TERMINAL_COLS};
    struct terminal *terminal = NULL;
    char accept[WEBSOCKET_ACCEPT];
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = websocket_check(req, reply, accept, err);
    if (r == 0 && (r = get_side(req, "rows", &size.rows, err)) == 0 &&
        (r = get_side(req, "cols", &size.cols, err)) == 0)
        r = session_terminal_open(s, size, &terminal, err);
    if (r < 0) {
        r = refuse_lost(s, reply, r, err);
    } else {
        websocket_answer(reply, accept);
        reply->serve = serve;
        reply->done = done;
        reply->context = terminal;
    }
    session_unref(s);
    return r;
}

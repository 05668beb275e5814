/* SPDX-License-Identifier: Apache-2.0 */

/* See terminal.h. The caller's terminal is in raw mode, so every key goes to the shell. It is
 * restored at every end of the program. */

#include "cli/session/terminal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/session/socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <termios.h>
#include <unistd.h>
#include <wslay/wslay.h>

enum {
    KEY_LEAVE = 0x1d, /* Ctrl-] */
    INPUT_MAX = 4096,
    MESSAGE_MAX = 1 << 20, /* bytes; the server sends smaller ones */
    CLOSE_MS = 2000,       /* for the server to answer the close frame */
    SIDE_MAX = 1000        /* the server's limit for rows and columns */
};

struct attached {
    struct client_socket socket;
    wslay_event_context_ptr ws;
    bool has_left;   /* the user typed Ctrl-], or a signal came */
    bool is_broken;  /* the connection is gone */
    bool has_status; /* the shell has ended */
    int status;
};

static struct termios saved;
static bool is_raw;
static volatile sig_atomic_t is_resized;
static volatile sig_atomic_t end_signal;

static void restore(void)
{
    if (is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    is_raw = false;
}

static void on_signal(int signal)
{
    if (signal == SIGWINCH)
        is_resized = 1;
    else
        end_signal = signal;
}

/* Installs the handlers and blocks the signals. ppoll() with *ret_waiting unblocks them, so
 * that they come only there. */
static void take_signals(sigset_t *ret_waiting)
{
    static const int signals[] = {SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        (void)sigaddset(&set, signals[i]);
        (void)sigaction(signals[i], &action, NULL);
    }
    (void)sigprocmask(SIG_BLOCK, &set, ret_waiting);
    (void)signal(SIGPIPE, SIG_IGN);
}

static int make_raw(struct err *err)
{
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return err_set(
            err, ERR_INTERNAL, errno, "cannot read the terminal's modes: %s", strerror(errno));
    struct termios raw = saved;
    cfmakeraw(&raw);
    is_raw = true;
    (void)atexit(restore);
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
        return err_set(
            err, ERR_INTERNAL, errno, "cannot set the terminal's modes: %s", strerror(errno));
    return 0;
}

static ssize_t on_receive(
    wslay_event_context_ptr ws, uint8_t *to, size_t len, int flags, void *context)
{
    struct attached *a = context;
    ssize_t n = client_socket_receive(&a->socket, to, len);
    if (n > 0)
        return n;
    a->is_broken = n != -EAGAIN;
    wslay_event_set_error(ws, a->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t on_send(
    wslay_event_context_ptr ws, const uint8_t *data, size_t len, int flags, void *context)
{
    struct attached *a = context;
    ssize_t n = client_socket_send(&a->socket, data, len);
    if (n >= 0)
        return n;
    a->is_broken = n != -EAGAIN;
    wslay_event_set_error(ws, a->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static int on_mask(wslay_event_context_ptr ws, uint8_t *to, size_t len, void *context)
{
    return getrandom(to, len, 0) == (ssize_t)len ? 0 : -1;
}

static void on_message(
    wslay_event_context_ptr ws, const struct wslay_event_on_msg_recv_arg *arg, void *context)
{
    struct attached *a = context;
    if (arg->opcode == WSLAY_BINARY_FRAME) {
        a->is_broken = fs_write_all(STDOUT_FILENO, arg->msg, arg->msg_length) < 0;
    } else if (arg->opcode == WSLAY_TEXT_FRAME) {
        json_t *word = json_loadb((const char *)arg->msg, arg->msg_length, 0, NULL);
        const json_t *code = json_object_get(word, "exit_code");
        a->has_status = json_is_integer(code);
        a->status = (int)json_integer_value(code) & 0xff;
        json_decref(word);
    }
}

static void send_message(struct attached *a, uint8_t opcode, const void *data, size_t len)
{
    const struct wslay_event_msg message = {opcode, data, len};
    (void)wslay_event_queue_msg(a->ws, &message);
}

static void get_size(struct winsize *ret)
{
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, ret) < 0 || !ret->ws_row || !ret->ws_col)
        *ret = (struct winsize){.ws_row = 24, .ws_col = 80};
    ret->ws_row = ret->ws_row < SIDE_MAX ? ret->ws_row : SIDE_MAX;
    ret->ws_col = ret->ws_col < SIDE_MAX ? ret->ws_col : SIDE_MAX;
}

static void send_size(struct attached *a)
{
    char text[80];
    struct winsize size;
    get_size(&size);
    int len = snprintf(text, sizeof(text), "{\"type\":\"resize\",\"rows\":%u,\"cols\":%u}",
        size.ws_row, size.ws_col);
    send_message(a, WSLAY_TEXT_FRAME, text, (size_t)len);
}

static void leave(struct attached *a)
{
    a->has_left = true;
    (void)wslay_event_queue_close(a->ws, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0);
}

static void pass_keys(struct attached *a)
{
    char keys[INPUT_MAX];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));
    if (n < 0 && errno == EINTR)
        return;
    const char *end = n > 0 ? memchr(keys, KEY_LEAVE, (size_t)n) : NULL;
    size_t len = end ? (size_t)(end - keys) : n > 0 ? (size_t)n : 0;
    if (len)
        send_message(a, WSLAY_BINARY_FRAME, keys, len);
    if (end || n <= 0)
        leave(a);
}

/* Waits for keys, data from the server or a signal. New keys are not read before the last ones
 * are sent. */
static void wait_and_pass(struct attached *a, const sigset_t *waiting)
{
    static const struct timespec patience = {.tv_sec = CLOSE_MS / 1000};
    bool is_full = wslay_event_want_write(a->ws);
    struct pollfd fds[] = {
        {.fd = is_full || a->has_left ? -1 : STDIN_FILENO, .events = POLLIN},
        {.fd = a->socket.fd, .events = (short)(POLLIN | (is_full ? POLLOUT : 0))},
    };
    int n = ppoll(fds, 2, a->has_left ? &patience : NULL, waiting);
    if (n == 0)
        a->is_broken = true;
    if (end_signal && !a->has_left)
        leave(a);
    if (is_resized && !a->has_left)
        send_size(a);
    is_resized = 0;
    if (n > 0 && fds[0].revents)
        pass_keys(a);
}

static void converse(struct attached *a, const sigset_t *waiting)
{
    /* Data that came with the server's reply can be read at once. */
    while (!a->is_broken && wslay_event_recv(a->ws) == 0 && wslay_event_send(a->ws) == 0 &&
           (wslay_event_want_read(a->ws) || wslay_event_want_write(a->ws)))
        wait_and_pass(a, waiting);
}

static int finish(const struct attached *a, struct err *err)
{
    unsigned code = wslay_event_get_status_code_received(a->ws);
    if (a->has_status)
        return a->status;
    if (end_signal)
        return 128 + end_signal;
    if (a->has_left)
        return 0;
    if (code == WSLAY_CODE_GOING_AWAY)
        return err_set(err, ERR_UNAVAILABLE, EPIPE, "the server stops; the terminal is closed");
    return err_set(err, ERR_UNAVAILABLE, EPIPE,
        "the connection to the server ended; the terminal is closed (code %u)", code);
}

static int attach(struct attached *a, struct err *err)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_receive,
        .send_callback = on_send,
        .genmask_callback = on_mask,
        .on_msg_recv_callback = on_message};
    sigset_t waiting;
    if (wslay_event_context_client_init(&a->ws, &callbacks, a) < 0)
        return err_set(err, ERR_INTERNAL, ENOMEM, "out of memory");
    wslay_event_config_set_max_recv_msg_length(a->ws, MESSAGE_MAX);
    take_signals(&waiting);
    int r = make_raw(err);
    if (r == 0) {
        converse(a, &waiting);
        r = finish(a, err);
    }
    restore();
    (void)fputs("\n", stderr);
    wslay_event_context_free(a->ws);
    return r;
}

int terminal_run(const struct client *client, const char *id, struct err *err)
{
    struct attached a = {0};
    struct winsize size;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return err_set(err, ERR_INVALID, ENOTTY,
            "stdin and stdout must be a terminal; `hermes session exec` runs code without one");
    get_size(&size);
    cleanup_free char *below = xasprintf("/pty?rows=%u&cols=%u", size.ws_row, size.ws_col);
    cleanup_free char *path = client_path(id, below, err);
    if (!path)
        return -EINVAL;
    int r = client_socket_open(client, path, &a.socket, err);
    if (r == 0) {
        (void)fprintf(stderr, "hermes: a shell in the box of %s; Ctrl-] leaves\n", id);
        r = attach(&a, err);
    }
    client_socket_done(&a.socket);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* See stdio.h. The main thread reads. Calls that may take long get a thread of their own;
 * everything else is answered at once. At the end of the input all calls are cancelled. */

#include "mcp/stdio.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/thread.h"
#include "base/str.h"
#include "mcp/peer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 32 << 20, CHUNK = 64 << 10 };

struct stdio {
    struct mcp *mcp;
    const struct mcp_surface *surface;
    struct mcp_peer *peer;
    pthread_mutex_t lock; /* of the output */
};

struct request {
    struct stdio *s;
    json_t *body;
    json_t *capabilities; /* of the client; a second handshake may bring others */
    struct mcp_call call;
};

static void write_all(const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
            (void)poll(&ready, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return; /* the client is gone; the input ends too */
        } else if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
}

static void send_line(void *context, const json_t *message)
{
    struct stdio *s = context;
    cleanup_free char *text = json_dumps(message, JSON_COMPACT);
    if (!text)
        return;
    (void)pthread_mutex_lock(&s->lock);
    size_t len = strlen(text);
    text[len] = '\n'; /* in place of the NUL: one write */
    write_all(text, len + 1);
    (void)pthread_mutex_unlock(&s->lock);
}

static void answer_error(struct stdio *s, json_t *id, struct mcp_error *error)
{
    json_t *message = mcp_error_message(id, error);
    send_line(s, message);
    json_decref(message);
    mcp_error_done(error);
}

static void request_free(struct request *r)
{
    mcp_error_done(&r->call.error);
    if (r->call.cancel_fd >= 0)
        (void)close(r->call.cancel_fd);
    json_decref(r->capabilities);
    json_decref(r->body);
    free(r);
}

/* Answers a request and frees it. */
static void *answer(void *arg)
{
    struct request *r = arg;
    struct stdio *s = r->s;
    json_t *message = mcp_answer(&r->call);
    /* The answer is the last that the client hears of this id. */
    mcp_peer_finish(s->peer, &r->call);
    if (message)
        send_line(s, message);
    json_decref(message);
    request_free(r);
    return NULL;
}

static void take_request(struct stdio *s, json_t *body, const struct mcp_message *m)
{
    struct request *r = xcalloc(1, sizeof(*r));
    r->capabilities = json_incref((json_t *)mcp_peer_capabilities(s->peer));
    *r = (struct request){.s = s,
        .capabilities = r->capabilities,
        .body = json_incref(body),
        .call = {.mcp = s->mcp,
            .surface = s->surface,
            .peer = s->peer,
            .owner = -1,
            .version = mcp_peer_version(s->peer),
            .capabilities = r->capabilities,
            .message = *m,
            .cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
            .send = send_line,
            .context = s}};
    struct mcp_error error = {0};
    int n = 0;
    if (mcp_message_is_modern(m, NULL) && mcp_check_modern(&r->call, NULL) < 0) {
        answer_error(s, m->id, &r->call.error);
        request_free(r);
        return;
    }
    if (r->call.cancel_fd < 0 || mcp_peer_begin(s->peer, &r->call) < 0) {
        (void)mcp_fail(&error, MCP_INTERNAL, "%d requests are under way; wait for one of them",
            MCP_PEER_CALLS);
        answer_error(s, m->id, &error);
        request_free(r);
        return;
    }
    if (!mcp_is_slow(m)) {
        (void)answer(r);
    } else if ((n = thread_start(NULL, answer, r)) < 0) {
        mcp_peer_finish(s->peer, &r->call);
        (void)mcp_fail(&error, MCP_INTERNAL, "no thread is left: %s", strerror(-n));
        answer_error(s, m->id, &error);
        request_free(r);
    }
}

static void take_message(struct stdio *s, json_t *value)
{
    struct mcp_message m;
    struct mcp_error error = {0};
    if (mcp_message_read(value, &m, &error) < 0)
        answer_error(s, m.id, &error);
    else if (m.kind == MCP_REQUEST)
        take_request(s, value, &m);
    else
        mcp_peer_take(s->peer, &m);
}

static void take_line(struct stdio *s, const char *line, size_t len)
{
    json_t *value = NULL;
    struct mcp_error error = {0};
    if (strspn(line, " \t\r") == len)
        return;
    if (mcp_parse(line, len, &value, &error) < 0) {
        answer_error(s, NULL, &error);
        return;
    }
    if (json_is_array(value) && mcp_peer_version(s->peer) == MCP_2025_03_26 &&
        json_array_size(value) <= MCP_BATCH_MAX) {
        for (size_t i = 0; i < json_array_size(value); i++)
            take_message(s, json_array_get(value, i));
    } else {
        take_message(s, value);
    }
    json_decref(value);
}

/* Takes the complete lines off the buffer. */
static void take_lines(struct stdio *s, struct buf *input)
{
    size_t at = 0;
    char *end;
    while ((end = memchr(input->data + at, '\n', input->len - at))) {
        *end = '\0';
        take_line(s, input->data + at, (size_t)(end - input->data) - at);
        at = (size_t)(end - input->data) + 1;
    }
    size_t left = input->len - at;
    memmove(input->data, input->data + at, left);
    input->len = left;
    input->data[left] = '\0';
}

int mcp_stdio_serve(struct mcp *mcp, const struct mcp_surface *surface)
{
    struct stdio s = {.mcp = mcp,
        .surface = surface,
        .peer = mcp_peer_new(mcp, surface, -1),
        .lock = PTHREAD_MUTEX_INITIALIZER};
    struct mcp_error error = {0};
    struct buf input;
    ssize_t n;
    buf_init(&input, LINE_MAX_BYTES);
    mcp_peer_hears(s.peer, send_line, &s);
    while ((n = buf_read_fd(&input, STDIN_FILENO, CHUNK)) > 0 || n == -EINTR) {
        if (n > 0)
            take_lines(&s, &input);
    }
    if (n == -EMSGSIZE) {
        (void)mcp_fail(&error, MCP_PARSE, "a line has more than %d bytes", LINE_MAX_BYTES);
        answer_error(&s, NULL, &error);
    }
    mcp_peer_cancel_all(s.peer);
    mcp_peer_deaf(s.peer);
    mcp_stop(mcp);
    mcp_peer_unref(s.peer);
    buf_done(&input);
    return 0;
}

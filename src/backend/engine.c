/* SPDX-License-Identifier: Apache-2.0 */

/* See engine.h. */

#include "backend/engine.h"

#include "backend/wire.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "json/read.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { API_WANTED = 41, API_LEAST = 40, API_NEW = 48 }; /* of version 1 */

struct talk {
    const struct engine *e;
    int fd;
    uint64_t until_ms;
};

/* Waits for the socket: 0, -ETIMEDOUT or -ECANCELED. */
static int wait_for(const struct talk *t, short events)
{
    struct pollfd fds[] = {{t->fd, events, 0}, {t->e->watch_fd, 0, 0}};
    uint64_t now = clock_ms();
    if (now >= t->until_ms)
        return -ETIMEDOUT;
    int n = poll(fds, 2, (int)(t->until_ms - now));
    return n == 0 ? -ETIMEDOUT : n > 0 && fds[1].revents ? -ECANCELED : 0;
}

static int dial(struct talk *t)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(t->e->socket) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", t->e->socket);
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0)
        return -errno;
    /* EAGAIN: its queue is full. It is tried again until the time is over. */
    while (connect(t->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        struct pollfd watch = {t->e->watch_fd, 0, 0};
        if (clock_ms() >= t->until_ms)
            return -ETIMEDOUT;
        if (poll(&watch, 1, 20) > 0)
            return -ECANCELED;
    }
    return 0;
}

static int send_all(const struct talk *t, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(t->fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EPIPE)
            return 0; /* an engine may answer before it has read all */
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        int r = wait_for(t, POLLOUT);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads at most `want` bytes: how many; 0 at the end. */
static ssize_t receive(const struct talk *t, char *to, size_t want)
{
    for (;;) {
        ssize_t n = read(t->fd, to, want);
        if (n >= 0)
            return n;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int r = wait_for(t, POLLIN);
        if (r < 0)
            return r;
    }
}

static int send_request(const struct talk *t, const char *method, const char *path,
    const char *type, const char *more, const char *body, size_t len)
{
    char head[1024];
    int n = snprintf(head, sizeof(head),
        "%s %s%s HTTP/1.1\r\nHost: engine\r\nUser-Agent: hermes\r\n%s"
        "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n",
        method, t->e->prefix, path, more, type, len);
    if (n < 0 || (size_t)n >= sizeof(head))
        return -ENAMETOOLONG;
    int r = send_all(t, head, (size_t)n);
    return r < 0 ? r : send_all(t, body, len);
}

/* Reads byte by byte, because the bytes after the head belong to the caller. An answer 100 is
 * skipped. */
static int read_head(const struct talk *t, struct wire_head *ret)
{
    char head[WIRE_HEAD_MAX];
    size_t len = 0;
    while (len < sizeof(head)) {
        ssize_t n = receive(t, head + len, 1);
        if (n <= 0)
            return n < 0 ? (int)n : -ECONNRESET;
        len++;
        if (head[len - 1] != '\n')
            continue;
        n = wire_head_parse(head, len, ret);
        if (n < 0)
            return (int)n;
        if (n > 0 && ret->status != 100)
            return 0;
        len = n > 0 ? 0 : len;
    }
    return -EPROTO;
}

static int read_body(const struct talk *t, const struct wire_head *head, struct buf *to)
{
    struct wire_chunks chunks = {0};
    char piece[16 << 10];
    if (head->status == 204 || head->status == 304)
        return 0;
    while (head->is_chunked   ? chunks.state != CHUNK_DONE
           : head->has_length ? to->len < head->length
                              : true) {
        size_t want = sizeof(piece);
        if (head->has_length && head->length - to->len < want)
            want = (size_t)(head->length - to->len);
        ssize_t n = receive(t, piece, want);
        if (n == 0 && !head->is_chunked && !head->has_length)
            return 0;
        if (n <= 0)
            return n < 0 ? (int)n : -ECONNRESET;
        if (head->is_chunked && (n = wire_chunks_take(&chunks, piece, (size_t)n)) < 0)
            return (int)n;
        if (buf_append(to, piece, (size_t)n) < 0)
            return -EPROTO; /* too long */
    }
    return 0;
}

/* Keeps what the engine said, between quotation marks: it may repeat what an image says. */
static void take_words(struct engine_answer *a)
{
    const char *text = json_string_value(json_object_get(a->json, "message"));
    if (!text)
        text = json_string_value(json_object_get(a->json, "cause"));
    if (text && text[0])
        place_quote(a->said, sizeof(a->said), text);
}

int engine_ask(struct engine *e, const char *method, const char *path, const struct buf *body,
    bool is_tar, struct engine_answer *ret)
{
    struct talk t = {.e = e, .fd = -1, .until_ms = clock_ms() + (uint64_t)e->within_ms};
    struct wire_head head = {0};
    cleanup_buf struct buf text;
    struct json_problem problem;
    *ret = (struct engine_answer){0};
    buf_init(&text, ENGINE_ANSWER_MAX);
    int r = dial(&t);
    if (r == 0)
        r = send_request(&t, method, path, is_tar ? "application/x-tar" : "application/json",
            "Connection: close\r\n", body ? body->data : "", body ? body->len : 0);
    if (r == 0)
        r = read_head(&t, &head);
    if (r == 0)
        r = read_body(&t, &head, &text);
    close_fd(&t.fd);
    if (r < 0)
        return r;
    ret->status = head.status;
    e->is_podman = head.is_podman;
    e->newest = head.api;
    ret->json = text.len ? json_read(text.data, text.len, &problem) : NULL;
    take_words(ret);
    return 0;
}

int engine_ask_json(struct engine *e, const char *method, const char *path, json_t *body,
    struct engine_answer *ret)
{
    char *text = json_dumps(body, JSON_COMPACT);
    struct buf bytes = {.data = text, .len = text ? strlen(text) : 0};
    json_decref(body);
    int r = text ? engine_ask(e, method, path, &bytes, false, ret) : -ENOMEM;
    free(text);
    return r;
}

void engine_answer_done(struct engine_answer *a)
{
    json_decref(a->json);
    a->json = NULL;
}

int engine_upgrade(struct engine *e, const char *path, const char *body, int *ret_fd)
{
    struct talk t = {.e = e, .fd = -1, .until_ms = clock_ms() + (uint64_t)e->within_ms};
    struct wire_head head = {0};
    int r = dial(&t);
    if (r == 0)
        r = send_request(&t, "POST", path, "application/json",
            "Connection: Upgrade\r\nUpgrade: tcp\r\n", body, strlen(body));
    if (r == 0)
        r = read_head(&t, &head);
    /* Podman and proxies may answer 200: the stream is the same then, unless it is in chunks.
     */
    if (r == 0 && !(head.status == 101 || (head.status == 200 && !head.is_chunked)))
        r = -EREMOTEIO;
    if (r < 0) {
        close_fd(&t.fd);
        return r;
    }
    *ret_fd = t.fd;
    return 0;
}

/* The oldest version that a new engine still has. */
static unsigned oldest_of(struct engine *e)
{
    struct engine_answer a = {0};
    uint32_t number = 0;
    int r = engine_ask(e, "GET", "/version", NULL, false, &a);
    const char *text = json_string_value(json_object_get(a.json, "MinAPIVersion"));
    if (r == 0 && text && str_has_prefix(text, "1."))
        (void)str_parse_u32(text + 2, &number);
    engine_answer_done(&a);
    return number;
}

/* Uses /_ping, because Podman starts programs to answer /version, which takes seconds on a busy
 * machine. */
enum place_error engine_hello(struct engine *e, struct backend *b)
{
    struct engine_answer a = {0};
    e->prefix[0] = '\0';
    int r = engine_ask(e, "GET", "/_ping", NULL, false, &a);
    engine_answer_done(&a);
    if (r < 0)
        return engine_failed(e, b, r);
    if (a.status != 200 || !e->newest)
        return backend_fail(
            b, PLACE_REFUSED, "%s is not the socket of a container engine", e->socket);
    if (e->newest < API_LEAST)
        return backend_fail(b, PLACE_REFUSED,
            "the engine has version 1.%u of the API; 1.%d is needed", e->newest, API_LEAST);
    unsigned use = e->newest < API_WANTED ? e->newest : API_WANTED;
    unsigned oldest = e->newest >= API_NEW ? oldest_of(e) : 0;
    (void)snprintf(e->prefix, sizeof(e->prefix), "/v1.%u", oldest > use ? oldest : use);
    return PLACE_FINE;
}

enum place_error engine_failed(const struct engine *e, struct backend *b, int r)
{
    if (r == -EACCES || r == -EPERM)
        return backend_fail(b, PLACE_AUTH,
            "no access to %s: backends_user must be in the group of this socket", e->socket);
    if (r == -EREMOTEIO)
        return backend_fail(b, PLACE_REFUSED, "the engine refused to open a stream");
    return backend_fail(b, PLACE_UNREACHABLE, "the engine at %s does not answer: %s", e->socket,
        r == -EPROTO ? "it does not speak HTTP" : strerror(-r));
}

enum place_error engine_refused(
    struct backend *b, const char *what, const struct engine_answer *a)
{
    return backend_fail(b, a->status == 404 ? PLACE_NOT_FOUND : PLACE_REFUSED,
        "the engine cannot %s: %s (%u)", what, a->said[0] ? a->said : "no reason", a->status);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What a server that was taken over sends to a session in a place: frames on the channel, and
 * commands with descriptors of all kinds. The bytes for the place stay whole frames, and there
 * are never more than may be kept. The first byte of each piece of the input says what it is.
 */

#include "backend/relay.h"
#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TO_MAX = 24 << 20, KINDS = 8, FDS = 4 };

void relay_event(const struct relay *r, struct spawn_event event)
{
    (void)r;
    if (event.kind != EVENT_USAGE && event.kind != EVENT_INTERRUPTED &&
        event.kind != EVENT_STARTED)
        abort();
}

void relay_forget(struct relay *r, const struct relay_helper *h)
{
    (void)r;
    (void)h;
}

void relay_terminal(struct relay *r, int control_fd)
{
    int type = 0;
    socklen_t len = sizeof(type);
    (void)r;
    if (getsockopt(control_fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
        abort();
    (void)close(control_fd);
}

/* As that of relay_in.c, which has another target. */
char *relay_parse_head(const char *line, size_t len, char kind[RELAY_HEAD + 1], size_t *ret_len)
{
    memcpy(kind, line, len - 1);
    kind[len - 1] = '\0';
    char *space = strchr(kind, ' ');
    char *end = NULL;
    unsigned long size = space ? strtoul(space + 1, &end, 10) : 0;
    if (!space || end == space + 1 || *end || size > RELAY_FRAME_MAX)
        return NULL;
    *space = '\0';
    *ret_len = size;
    return kind;
}

/* One descriptor of a kind that a server has. */
static int make_fd(unsigned kind)
{
    static const char words[sizeof(struct place_head) + 6] = "";
    int pair[2] = {-1, -1};
    switch (kind % KINDS) {
    case 0:
        return fs_memfd_sealed("words", words, sizeof(words));
    case 1:
        return memfd_create("unsealed", MFD_CLOEXEC);
    case 2:
    case 3:
        if (pipe2(pair, O_CLOEXEC) < 0)
            abort();
        (void)close(pair[kind % KINDS == 2]);
        return pair[kind % KINDS == 3];
    case 4:
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            abort();
        break;
    case 5:
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            abort();
        break;
    case 6:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    default:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    (void)close(pair[1]);
    return pair[0];
}

static void send_command(int socket, const uint8_t *data, size_t len, unsigned what)
{
    struct spawn_command command = {.kind = len ? data[0] : 0};
    unsigned count = (what >> 1) % (FDS + 2);
    int fds[FDS + 1];
    for (unsigned i = 0; i < count && i <= FDS; i++)
        fds[i] = make_fd(i + 1 < len ? data[i + 1] : 0);
    size_t size = what & 0x80 ? len : sizeof(command);
    (void)fdpass_send_now(socket, what & 0x80 ? (const void *)data : &command, size, fds,
        count > FDS ? FDS + 1 : count);
    for (unsigned i = 0; i < count && i <= FDS; i++)
        (void)close(fds[i]);
}

/* The bytes for the place are whole frames, but for one that the server has begun. */
static void check(const struct relay *r)
{
    size_t at = 0;
    while (at < r->to.len) {
        const char *line = r->to.data + at, *end = memchr(line, '\n', r->to.len - at);
        char kind[RELAY_HEAD + 1];
        size_t len;
        if (!end || end - line >= RELAY_HEAD ||
            !relay_parse_head(line, (size_t)(end - line) + 1, kind, &len))
            abort();
        at = (size_t)(end - r->to.data) + 1 + len;
    }
    if (!r->is_over && at != r->to.len + r->server_left)
        abort();
}

static void step(struct relay *r, const int ends[2], const uint8_t *data, size_t len)
{
    unsigned what = len ? data[0] : 0;
    if (what & 1) {
        send_command(ends[0], data + 1, len ? len - 1 : 0, what);
        relay_command(r);
    } else {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
            abort();
        close_fd(&r->channel);
        r->channel = pair[0];
        (void)send(pair[1], data + (len > 0), len ? len - 1 : 0, MSG_NOSIGNAL);
        if (len > 1 && relay_channel(r) < 0)
            r->is_over = true;
        (void)close(pair[1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct place_row row = {.kind = PLACE_LOCAL};
    static struct backend b = {.row = &row};
    static struct relay r;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    r = (struct relay){.b = &b, .socket = ends[1], .out = -1, .err = -1, .channel = -1};
    buf_init(&r.words, PLACE_WORDS_MAX);
    buf_init(&r.to, TO_MAX);
    buf_init(&r.own, TO_MAX);
    for (size_t at = 0; at < size && !r.is_over;) {
        const uint8_t *end = memchr(data + at, 0xff, size - at);
        size_t len = end ? (size_t)(end - (data + at)) : size - at;
        step(&r, ends, data + at, len);
        if (!r.is_over)
            check(&r);
        at += len + 1;
    }
    for (int i = 0; i < RELAY_HELPERS; i++)
        if (r.helpers[i].id)
            relay_helper_drop(&r.helpers[i]);
    buf_done(&r.words);
    buf_done(&r.to);
    buf_done(&r.own);
    close_fd(&r.out);
    close_fd(&r.err);
    close_fd(&r.channel);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return 0;
}

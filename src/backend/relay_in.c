/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes from a place: frames of a far shell, or whatever a hostile place sends. Each piece goes
 * to its receiver at once; no frame is kept whole. A frame of the interpreter goes to the
 * server as it is: the server checks those of a box in the same way. */

#include "backend/relay.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TO_CHANNEL, TO_OUT, TO_ERR, TO_FILE, TO_EXIT, TO_ACK, TO_CLOSE, TO_NOTHING, TO_DONE };

static const struct {
    const char *kind;
    int target;
} kinds[] = {
    {"out", TO_OUT},
    {"err", TO_ERR},
    {"done", TO_DONE},
    {"ready", TO_CHANNEL},
    {"jobs", TO_CHANNEL},
    {"variables", TO_CHANNEL},
    {"settled", TO_CHANNEL},
    {"exit", TO_EXIT},
    {"ack", TO_ACK},
    {"file", TO_FILE},
    {"file_close", TO_CLOSE},
    {"ping", TO_NOTHING},
};

static bool is_short(int target)
{
    return target == TO_EXIT || target == TO_ACK || target == TO_CLOSE || target == TO_NOTHING;
}

char *relay_parse_head(const char *line, size_t len, char kind[RELAY_HEAD + 1], size_t *ret_len)
{
    uint64_t size;
    memcpy(kind, line, len - 1);
    kind[len - 1] = '\0';
    char *space = strchr(kind, ' ');
    if (!space || str_parse_u64(space + 1, &size) < 0 || size > RELAY_FRAME_MAX)
        return NULL;
    *space = '\0';
    *ret_len = (size_t)size;
    return kind;
}

static int parse_head(struct relay *r)
{
    char text[RELAY_HEAD + 1];
    size_t len;
    if (!relay_parse_head(r->head, r->head_len, text, &len))
        return -EPROTO;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!str_eq(kinds[i].kind, text))
            continue;
        r->target = kinds[i].target;
        r->left = len;
        r->has_frame = true;
        r->head_sent = 0;
        r->small_len = 0;
        r->helper = NULL;
        return is_short(r->target) && len >= sizeof(r->small) ? -EPROTO : 0;
    }
    return -EPROTO;
}

static int take_head(struct relay *r)
{
    while (r->piece_at < r->piece_len) {
        char byte = r->piece[r->piece_at++];
        if (r->head_len == sizeof(r->head))
            return -EPROTO;
        r->head[r->head_len++] = byte;
        if (byte == '\n')
            return parse_head(r);
    }
    return 0;
}

static uint64_t number_of(const struct relay *r)
{
    char text[sizeof(r->small) + 1];
    uint64_t number = 0;
    (void)snprintf(text, sizeof(text), "%.*s", (int)r->small_len, r->small);
    return str_parse_u64(text, &number) == 0 ? number : 0;
}

static struct relay_helper *find_helper(struct relay *r, uint64_t id)
{
    for (int i = 0; id && i < RELAY_HELPERS; i++)
        if (r->helpers[i].id == id)
            return &r->helpers[i];
    return NULL;
}

static int end_frame(struct relay *r)
{
    int result = 0;
    switch (r->target) {
    case TO_DONE:
        r->in_exec = false;
        break;
    case TO_EXIT:
        r->in_exec = false;
        relay_event(r,
            (struct spawn_event){.kind = EVENT_EXITED, .wait_status = (int32_t)number_of(r)});
        break;
    case TO_ACK:
        result = relay_confirm(r, number_of(r));
        break;
    case TO_CLOSE: {
        struct relay_helper *h = find_helper(r, number_of(r));
        if (h)
            relay_helper_drop(h);
        break;
    }
    default:
        break;
    }
    r->has_frame = false;
    r->head_len = 0;
    return result;
}

/* Takes the number at the beginning of a frame `file`. */
static int take_number(struct relay *r)
{
    while (r->piece_at < r->piece_len && r->left > 0) {
        char byte = r->piece[r->piece_at++];
        r->left--;
        if (byte == ' ') {
            r->helper = find_helper(r, number_of(r));
            r->target = r->helper ? TO_FILE : TO_NOTHING;
            r->small_len = sizeof(r->small); /* the number is whole */
            return 0;
        }
        if (r->small_len == 10)
            return -EPROTO;
        r->small[r->small_len++] = byte;
    }
    return 0;
}

/* Where bytes of the current frame go; -1: nowhere. */
static int taker_of(const struct relay *r)
{
    switch (r->target) {
    case TO_CHANNEL:
    case TO_DONE:
        return r->channel;
    case TO_OUT:
        return r->out;
    case TO_ERR:
        return r->err;
    case TO_FILE:
        return r->helper->fd;
    default:
        return -1;
    }
}

/* Gives bytes to a descriptor. Returns how many are done with: a taker that is gone takes all,
 * and so does a full pipe between two execs. */
static ssize_t give(struct relay *r, int fd, const char *data, size_t len)
{
    ssize_t n = fd < 0 ? (ssize_t)len : write(fd, data, len);
    if (n >= 0)
        return n;
    bool is_output = r->target == TO_OUT || r->target == TO_ERR;
    if (errno == EAGAIN || errno == EINTR)
        return is_output && !r->in_exec ? (ssize_t)len : 0;
    return (ssize_t)len;
}

/* Moves bytes of the current frame. Returns false when its taker has no room. */
static bool move(struct relay *r)
{
    int fd = taker_of(r);
    bool for_server = r->target == TO_CHANNEL || r->target == TO_DONE;
    while (for_server && r->head_sent < r->head_len) {
        ssize_t n = give(r, fd, r->head + r->head_sent, r->head_len - r->head_sent);
        if (n == 0)
            return false;
        r->head_sent += (size_t)n;
    }
    size_t here = r->piece_len - r->piece_at;
    size_t len = here < r->left ? here : r->left;
    ssize_t n = len ? give(r, fd, r->piece + r->piece_at, len) : 0;
    if (is_short(r->target) && n > 0 && r->small_len + (size_t)n <= sizeof(r->small)) {
        memcpy(r->small + r->small_len, r->piece + r->piece_at, (size_t)n);
        r->small_len += (size_t)n;
    }
    r->piece_at += (size_t)n;
    r->left -= (size_t)n;
    return n > 0 || len == 0;
}

void relay_forget(struct relay *r, const struct relay_helper *h)
{
    if (r->has_frame && r->target == TO_FILE && r->helper == h)
        r->target = TO_NOTHING;
}

int relay_take(struct relay *r, int *ret_wait_fd)
{
    *ret_wait_fd = -1;
    for (;;) {
        int error = 0;
        if (!r->has_frame)
            error = take_head(r);
        if (error < 0 || !r->has_frame)
            return error;
        if (r->target == TO_FILE && r->small_len < sizeof(r->small)) {
            error = take_number(r);
            if (error < 0 || (r->left == 0 && r->small_len < sizeof(r->small)))
                return -EPROTO;
            if (r->small_len < sizeof(r->small))
                return 0; /* more bytes are to come */
        }
        if (!move(r)) {
            *ret_wait_fd = taker_of(r);
            return 0;
        }
        if (r->left == 0)
            error = end_frame(r);
        else if (r->piece_at == r->piece_len)
            return 0;
        if (error < 0)
            return error;
    }
}

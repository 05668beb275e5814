/* SPDX-License-Identifier: Apache-2.0 */

/* Files and terminals of a far session: each conversation with a file helper (proto/files.h) or
 * a terminal (proto/terminal_link.h) is carried in frames `file`, which begin with the
 * conversation's number and a space. */

#include "bash/far.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "box/files.h"

enum { PIECE = 64 << 10, WAITING_MAX = 1 << 20, NUMBER_MAX = 12 };

static struct far_helper *find(struct far *far, uint32_t id)
{
    for (int i = 0; i < FAR_HELPERS; i++)
        if (far->helpers[i].id == id)
            return &far->helpers[i];
    return NULL;
}

static void drop(struct far_helper *h)
{
    close_fd(&h->fd);
    buf_done(&h->to);
    h->id = 0;
}

static void tell_closed(struct far *far, uint32_t id)
{
    char text[NUMBER_MAX];
    int n = snprintf(text, sizeof(text), "%u", id);
    link_queue(&far->link, "file_close", text, (size_t)n);
}

static _Noreturn void serve_files(const struct far *far, int fd)
{
    (void)dup2(fd, 0);
    (void)sys_close_range(1, FAR_LAST_FD, 0);
    files_serve(0, far->root, UINT64_MAX);
}

static void open_helper(
    struct far *far, uint32_t id, void (*serve)(const struct far *far, int fd))
{
    int pair[2];
    struct far_helper *h = find(far, id) ? NULL : find(far, 0);
    if (!h || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        tell_closed(far, id);
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        serve(far, pair[1]);
    (void)close(pair[1]);
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    if (pid < 0) {
        (void)close(pair[0]);
        tell_closed(far, id);
        return;
    }
    *h = (struct far_helper){.id = id, .fd = pair[0]};
    buf_init(&h->to, (size_t)WAITING_MAX + FRAME_MAX);
}

bool far_files_on_frame(struct far *far, const struct frame *f)
{
    char text[NUMBER_MAX];
    uint32_t id;
    bool is_terminal = str_eq(f->kind, "terminal_open");
    if (!is_terminal && !str_has_prefix(f->kind, "file"))
        return false;
    const char *space = memchr(f->payload, ' ', f->len < NUMBER_MAX ? f->len : NUMBER_MAX);
    size_t len = space ? (size_t)(space - f->payload) : f->len;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(len < NUMBER_MAX ? len : 0), f->payload);
    if (str_parse_u32(text, &id) < 0 || id == 0)
        return true;
    struct far_helper *h = find(far, id);
    if (is_terminal || str_eq(f->kind, "file_open"))
        open_helper(far, id, is_terminal ? far_terminal : serve_files);
    else if (str_eq(f->kind, "file_close") && h)
        drop(h);
    else if (h && space)
        (void)buf_append(&h->to, space + 1, f->len - len - 1);
    return true;
}

void far_files_read(struct far *far, struct far_helper *h)
{
    static char piece[NUMBER_MAX + PIECE];
    if (!h->id)
        return;
    int head = snprintf(piece, NUMBER_MAX, "%u ", h->id);
    ssize_t n = read(h->fd, piece + head, PIECE);
    if (n > 0) {
        link_queue(&far->link, "file", piece, (size_t)head + (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        tell_closed(far, h->id);
        drop(h);
    }
}

void far_files_write(struct far *far, struct far_helper *h)
{
    (void)far;
    if (!h->id || !h->to.len)
        return;
    ssize_t n = send(h->fd, h->to.data, h->to.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        h->to.len -= (size_t)n;
        memmove(h->to.data, h->to.data + n, h->to.len);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        buf_clear(&h->to); /* it has ended, and its end is read next */
    }
}

bool far_files_are_full(const struct far *far)
{
    for (int i = 0; i < FAR_HELPERS; i++)
        if (far->helpers[i].id && far->helpers[i].to.len > WAITING_MAX)
            return true;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Messages of the program that started egress, then of the spawner (proto/egress.h). A message
 * that makes no sense ends egress: it closes every box. */

#include "egress/egress.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHANNEL_WITHOUT_V6 = KIT_COUNT - 3 };

int adopt_ceiling(struct egress *e, int fd, int *ret_link)
{
    struct egress_message message;
    int fds[2] = {-EBADF, -EBADF};
    unsigned count;
    ssize_t n = fdpass_receive(fd, &message, sizeof(message), fds, 2, &count);
    cleanup_close int file = fds[0];
    *ret_link = fds[1];
    if (n < 0)
        return (int)n;
    if (n != (ssize_t)sizeof(message) || message.kind != EGRESS_CEILING || file < 0)
        return -EBADMSG;
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    int set = fcntl(file, F_GET_SEALS);
    struct stat st;
    if (set < 0 || (set & seals) != seals || fstat(file, &st) < 0 ||
        st.st_size != (off_t)sizeof(e->ceiling))
        return -EBADMSG;
    if (pread(file, &e->ceiling, sizeof(e->ceiling), 0) != (ssize_t)sizeof(e->ceiling))
        return -EIO;
    return network_ceiling_is_valid(&e->ceiling) ? 0 : -EINVAL;
}

/* Puts the descriptors of a kit into their places; -EBADF where IPv6 is missing. */
static void sort_kit(const int *fds, bool has_v6, int ret[KIT_COUNT])
{
    unsigned next = 0;
    for (int i = 0; i < KIT_COUNT; i++) {
        bool is_v6 = i == KIT_TCP6 || i == KIT_UDP6 || i == KIT_RAW6;
        ret[i] = is_v6 && !has_v6 ? -EBADF : fds[next++];
    }
}

static bool is_channel(int fd)
{
    int domain = 0;
    int type = 0;
    socklen_t len = sizeof(int);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

static struct box *find(struct egress *e, uint64_t number)
{
    struct box *b;
    TAILQ_FOREACH(b, &e->boxes, entry)
    if (b->number == number && !b->is_leaving)
        return b;
    return NULL;
}

static void adopt(
    struct egress *e, const struct egress_message *message, int *fds, unsigned count)
{
    bool has_v6 = !(message->flags & EGRESS_NO_V6);
    unsigned channel = has_v6 ? (unsigned)KIT_COUNT : CHANNEL_WITHOUT_V6 + 0u;
    int kit[KIT_COUNT];
    if (count != channel + 1 || !is_channel(fds[channel]) || find(e, message->box)) {
        log_event(LOG_ERROR, "refused to adopt a box", (char *)NULL);
        while (count)
            close_fd(&fds[--count]);
        return;
    }
    struct box *b = box_new(e, message->box, message->owner);
    sort_kit(fds, has_v6, kit);
    box_take_kit(b, kit);
    b->channel.fd = fds[channel];
    if (loop_add(e, &b->channel) < 0) {
        box_bury(b);
        return;
    }
    if (channel_read(b) && !b->has_policy)
        channel_hello(b);
}

enum served adopt_serve(struct source *s)
{
    struct egress *e = s->owner;
    for (;;) {
        struct egress_message message;
        int fds[EGRESS_ADOPT_FDS];
        unsigned count;
        ssize_t n =
            fdpass_receive_now(s->fd, &message, sizeof(message), fds, EGRESS_ADOPT_FDS, &count);
        if (n == -EAGAIN)
            return SERVED_ALL;
        if (n == -EMSGSIZE) { /* no room for its descriptors: that box has no network */
            log_event(LOG_ERROR, "cannot adopt a box: too many open files", (char *)NULL);
            continue;
        }
        if (n == 0 || n == -ECONNRESET)
            _exit(0); /* nothing to write, and no file may be opened any more */
        if (n != (ssize_t)sizeof(message)) {
            log_event(LOG_ERROR, "unreadable message of the spawner", (char *)NULL);
            _exit(1);
        }
        struct box *b = message.kind == EGRESS_DROP ? find(e, message.box) : NULL;
        if (message.kind == EGRESS_ADOPT) {
            adopt(e, &message, fds, count);
        } else {
            while (count)
                close_fd(&fds[--count]);
        }
        if (b)
            box_drop(b);
    }
}

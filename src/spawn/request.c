/* SPDX-License-Identifier: Apache-2.0 */

/* See request.h. Every number is compared with the sealed table, every descriptor with the kind
 * that it must have. A bad request is refused, never repaired. */

#include "spawn/request.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

static bool in_range(uint64_t value, uint64_t max)
{
    return value >= 1 && value <= max;
}

static bool limits_ok(const struct spawn_limits *l, const struct spawn_limits *max)
{
    return in_range(l->memory_bytes, max->memory_bytes) &&
           in_range(l->disk_bytes, max->disk_bytes) &&
           in_range(l->file_bytes, max->file_bytes) &&
           in_range(l->stack_bytes, max->stack_bytes) && in_range(l->inodes, max->inodes) &&
           in_range(l->processes, max->processes) && in_range(l->open_files, max->open_files) &&
           in_range(l->cpu_milli, max->cpu_milli) && in_range(l->cpu_s, max->cpu_s);
}

bool request_is_pipe(int fd)
{
    struct statfs fs;
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && fstatfs(fd, &fs) == 0 &&
           fs.f_type == PIPEFS_MAGIC;
}

static bool is_sealed_memfd(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_WRITE);
}

static bool has_option(int fd, int option, int value)
{
    int is;
    socklen_t size = sizeof(is);
    return getsockopt(fd, SOL_SOCKET, option, &is, &size) == 0 && is == value;
}

static bool has_no_name(int fd, int (*ask)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_un name;
    socklen_t size = sizeof(name);
    return ask(fd, (struct sockaddr *)&name, &size) == 0 && size == sizeof(name.sun_family);
}

/* An end of a socketpair, which leads nowhere but to the process that sent it. A connection to
 * a service has a name at one of its ends: a server's stderr may be one to the host's journal.
 */
static bool is_pair(int fd, int type)
{
    return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, type) &&
           has_option(fd, SO_ACCEPTCONN, 0) && has_no_name(fd, getsockname) &&
           has_no_name(fd, getpeername);
}

/* On which a box is commanded, and tells. */
static bool is_wire(int fd)
{
    return is_pair(fd, SOCK_SEQPACKET);
}

static bool is_channel(int fd)
{
    return is_pair(fd, SOCK_STREAM);
}

bool request_restart_ok(const int *fds, unsigned fd_count)
{
    return fd_count == 4 && is_sealed_memfd(fds[0]) && request_is_pipe(fds[1]) &&
           request_is_pipe(fds[2]) && is_channel(fds[3]);
}

bool request_files_ok(const int *fds, unsigned fd_count)
{
    return fd_count == 1 && is_channel(fds[0]);
}

bool request_terminal_ok(const int *fds, unsigned fd_count)
{
    return fd_count == 2 && is_channel(fds[0]) && is_sealed_memfd(fds[1]);
}

bool request_network_ok(const int *fds, unsigned fd_count)
{
    return fd_count == 1 && is_wire(fds[0]);
}

bool request_fork_ok(const struct spawner *s, const struct spawn_command *command,
    const int *fds, unsigned fd_count)
{
    bool is_run = command->limits.memory_bytes;
    return (fd_count == 4 || (is_run && fd_count == 5)) && is_wire(fds[0]) &&
           request_is_pipe(fds[1]) && request_is_pipe(fds[2]) && is_channel(fds[3]) &&
           (!is_run || limits_ok(&command->limits, &s->setup.max));
}

bool request_image_ok(
    const struct spawner *s, const struct spawn_image *i, const int *fds, unsigned fd_count)
{
    return fd_count == 1 && is_wire(fds[0]) && i->root < s->root_count &&
           in_range(i->count, SPAWN_MAX_LAYERS) && !(i->flags & ~(IMAGE_WHOLE | IMAGE_TOP));
}

bool request_ok(
    const struct spawner *s, const struct spawn_box *r, const int *fds, unsigned fd_count)
{
    const uint32_t known =
        BOX_STDIN | BOX_COLLECT | BOX_WARM | BOX_CHANNEL | BOX_FORKS | BOX_NETWORK | BOX_ROOT;
    bool has_network = r->flags & BOX_NETWORK;
    bool collects = r->flags & BOX_COLLECT;
    bool is_session = r->flags & BOX_CHANNEL;
    unsigned want = 4 + !!(r->flags & BOX_STDIN) + collects + is_session + has_network;
    bool has_root = r->root < s->root_count || image_exists(s, r->root);
    if (!has_root || r->exec >= s->roots[r->root].exec_count || (r->flags & ~known) ||
        (collects && is_session) || fd_count != want || (r->flags & BOX_FORKS && !is_session) ||
        r->mount_count > SPAWN_MAX_BOX_MOUNTS || !limits_ok(&r->limits, &s->setup.max))
        return false;
    if (r->remove && !(s->setup.flags & SETUP_ALLOW_CONTROLS))
        return false;
    /* Its filter lets it make set-id files: none may be outside of its own memory. */
    if (r->flags & BOX_ROOT && (is_session || r->flags & BOX_WARM || r->mount_count ||
                                   !s->ids.unique || !image_exists(s, r->root)))
        return false;
    for (uint32_t i = 0; i < r->mount_count; i++) {
        const struct spawn_box_mount *m = &r->mounts[i];
        bool is_layers = s->images.has_source && m->source >= s->images.source;
        if (m->source >= s->source_count || is_layers ||
            (m->writable && !s->writable_sources[m->source]))
            return false;
    }
    if (!is_wire(fds[0]) || !is_sealed_memfd(fds[1]) || !request_is_pipe(fds[2]) ||
        !request_is_pipe(fds[3]))
        return false;
    if ((r->flags & BOX_STDIN) && !request_is_pipe(fds[4]) && !is_sealed_memfd(fds[4]))
        return false;
    if (has_network &&
        (s->egress.source < 0 || r->remove & BARRIER_NETNS || !is_wire(fds[--fd_count])))
        return false;
    int last = fds[fd_count - 1];
    return (!collects || request_is_pipe(last)) && (!is_session || is_channel(last));
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Asks for the box of a stage. The box gets its ends of the pipes, the sealed package and one
 * end of the socket for events and commands; ours stay in struct stage. A run that a template
 * box can serve takes a copy of it instead, with the same ends. */

#include "run/stage/internal.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "network/policy.h"
#include "proto/box.h"
#include "proto/zygote.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The descriptors that the box will hold; -1: none. */
struct box_ends {
    int socket;
    int package; /* -1: the caller of the stage has written it */
    int in, out, err;
    int collect;
    int network;
};

static void ends_close(struct box_ends *ends)
{
    close_fd(&ends->socket);
    close_fd(&ends->package);
    close_fd(&ends->in);
    close_fd(&ends->out);
    close_fd(&ends->err);
    close_fd(&ends->collect);
    close_fd(&ends->network);
}

static int package_fd(const struct stage *st, const struct box_ends *ends)
{
    return ends->package < 0 ? st->spec->package_fd : ends->package;
}

/* Makes a pipe. Only the box will hold its end. Our end does not block. */
static int open_pipe(bool box_writes, int *ret_ours, int *ret_box)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *ret_ours = fds[box_writes ? 0 : 1];
    *ret_box = fds[box_writes ? 1 : 0];
    return fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_stdin(struct stage *st, int *ret_box_fd, struct err *err)
{
    int r = 0;
    if (st->spec->stdin_data && st->spec->stdin_size) {
        *ret_box_fd = fs_memfd_sealed("stdin", st->spec->stdin_data, st->spec->stdin_size);
        r = *ret_box_fd < 0 ? *ret_box_fd : 0;
    } else if (st->spec->stdin_fd >= 0) {
        r = open_pipe(false, &st->in.box_fd, ret_box_fd);
        st->in.source_fd = st->spec->stdin_fd;
    }
    return r < 0 ? err_set(err, err_code_of(-r), -r, "cannot open stdin: %s", strerror(-r)) : 0;
}

static int check_room(const struct stage_spec *spec, struct err *err)
{
    uint64_t bytes;
    uint64_t inodes;
    package_weigh(&spec->package, &bytes, &inodes);
    if (bytes > spec->limits.disk_mb << 20 || inodes + 2 > limits_inodes(spec->limits.disk_mb))
        return err_set(err, ERR_TOO_LARGE, ENOSPC,
            "the files of the run do not fit into disk_mb=%llu; raise that limit",
            (unsigned long long)spec->limits.disk_mb);
    return 0;
}

/* Makes the network channel and begins to follow it. *ret_fd is the end for the spawner, or
 * stays as it is when no network was asked for. */
static int open_network(struct stage *st, int *ret_fd, struct err *err)
{
    const struct stage_spec *spec = st->spec;
    if (!spec->network)
        return 0;
    cleanup_free struct network_policy *policy = network_policy_copy(spec->network);
    network_policy_limit(policy, &spec->limits);
    int r = network_link_open(spec->hub, policy, spec->asker, &st->link, ret_fd, err);
    if (r == 0)
        st->tally = network_tally_new(st->link, true);
    return r;
}

/* Takes a copy of a template box, which waits for its package, and gives it that. False: the
 * run starts cold, and st->cold_reason says why. */
static bool take_copy(struct stage *st, const struct box_ends *ends)
{
    const struct stage_spec *spec = st->spec;
    struct template_use use = spec->template_use;
    struct template_copy copy;
    struct spawn_limits limits;
    if (!spec->templates || st->cold_reason)
        return false;
    use.out_fd = ends->out;
    use.err_fd = ends->err;
    use.in_fd = ends->in;
    st->cold_reason = spec->templates->copy(spec->templates->context, &use, &copy);
    if (st->cold_reason)
        return false;
    close_fd(&st->socket);
    st->socket = copy.socket;
    st->channel = copy.channel;
    st->held = copy.held;
    limits_to_spawn(&spec->limits, &limits);
    const struct zygote_hand hand = {.flags = ends->in < 0 ? 0 : BOX_STDIN,
        .cpu_s = limits.cpu_s,
        .file_bytes = limits.file_bytes,
        .stack_bytes = limits.stack_bytes};
    stage_on_event(st, &copy.started);
    /* A copy that cannot be given its package has ended already; its event says so. */
    const int fds[] = {package_fd(st, ends), ends->out, ends->err, ends->in};
    (void)fdpass_send_now(st->channel, &hand, sizeof(hand), fds, ends->in < 0 ? 3 : 4);
    return true;
}

void stage_hear_copy(struct stage *st)
{
    struct link_record record;
    if (st->channel < 0 ||
        recv(st->channel, &record, sizeof(record), MSG_DONTWAIT) != (ssize_t)sizeof(record) ||
        record.kind != LINK_FAILED || record.step >= STEP_COUNT)
        return;
    st->end = (struct spawn_event){.kind = EVENT_FAILED,
        .step = record.step,
        .error = record.error < 0 && record.error > -4096 ? record.error : -EIO};
}

/* Opens the sockets and pipes that every box needs, with both ends. */
static int open_ends(struct stage *st, struct box_ends *ends, struct err *err)
{
    int pair[2];
    int r =
        st->spec->package_fd < 0 ? package_write(&st->spec->package, &ends->package, err) : 0;
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(
            err, err_code_of(errno), errno, "cannot make a socket: %s", strerror(errno));
    st->socket = pair[0];
    ends->socket = pair[1];
    if ((ends->out < 0 && (r = open_pipe(true, &st->out_fd, &ends->out)) < 0) ||
        (r = open_pipe(true, &st->err_fd, &ends->err)) < 0 ||
        (st->collected && (r = open_pipe(true, &st->collect_fd, &ends->collect)) < 0))
        return err_set(err, err_code_of(-r), -r, "cannot make a pipe: %s", strerror(-r));
    return ends->in < 0 ? open_stdin(st, &ends->in, err) : 0;
}

static struct spawn_box describe(const struct stage_spec *spec)
{
    struct spawn_box box = {.kind = SPAWN_BOX,
        .root = spec->root,
        .exec = spec->exec,
        .flags = spec->is_root                          ? BOX_ROOT
                 : spec->cold_reason || spec->templates ? 0
                                                        : BOX_WARM,
        .remove = spec->watch->remove,
        .owner = spec->owner,
        .mount_count = (uint32_t)spec->mount_count};
    limits_to_spawn(&spec->limits, &box.limits);
    for (size_t i = 0; i < spec->mount_count; i++) {
        box.mounts[i].source = spec->mounts[i].source;
        box.mounts[i].writable = spec->mounts[i].writable;
        memcpy(box.mounts[i].path, spec->mounts[i].path, sizeof(spec->mounts[i].path));
    }
    return box;
}

/* Sends the request. The order of the descriptors is that of proto/spawn.h. */
static int ask(const struct stage *st, const struct box_ends *ends,
    struct spawner_client *spawner, struct err *err)
{
    struct spawn_box box = describe(st->spec);
    int fds[7] = {ends->socket, package_fd(st, ends), ends->out, ends->err};
    unsigned count = 4;
    if (ends->in >= 0) {
        box.flags |= BOX_STDIN;
        fds[count++] = ends->in;
    }
    if (ends->collect >= 0) {
        box.flags |= BOX_COLLECT;
        fds[count++] = ends->collect;
    }
    if (ends->network >= 0) {
        box.flags |= BOX_NETWORK;
        fds[count++] = ends->network;
    }
    return spawner_box(spawner, &box, fds, count, err);
}

int stage_request(struct stage *st, struct spawner_client *spawner, struct err *err)
{
    CLEANUP(ends_close)
    struct box_ends ends = {.socket = -1,
        .package = -1,
        .in = st->spec->box_stdin_fd,
        .out = st->spec->box_stdout_fd,
        .err = -1,
        .collect = -1,
        .network = -1};
    int r = check_room(st->spec, err);
    if (r == 0)
        r = open_ends(st, &ends, err);
    if (r < 0 || take_copy(st, &ends))
        return r;
    r = open_network(st, &ends.network, err);
    return r < 0 ? r : ask(st, &ends, spawner, err);
}

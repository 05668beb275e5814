/* SPDX-License-Identifier: Apache-2.0 */

/* See box.h. */

#include "session/box.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/str.h"
#include "run/engine_state.h"
#include "run/image_root.h"
#include "run/package.h"
#include "run/warmth.h"
#include "session/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The package and both ends of the pipes and the channel of one payload. */
struct ends {
    int package;
    int out[2]; /* the server's end, the box's end */
    int err[2];
    int channel[2];
    uint32_t exec;
    bool may_be_warm;
};

void session_box_init(struct session_box *box)
{
    *box = (struct session_box){-1, -1, -1, -1, NULL};
}

static void ends_done(struct ends *e)
{
    close_fd(&e->package);
    for (int i = 0; i < 2; i++) {
        close_fd(&e->out[i]);
        close_fd(&e->err[i]);
        close_fd(&e->channel[i]);
    }
}

static int failed(struct err *err, const char *what)
{
    return err_set(err, err_code_of(errno), errno, "cannot %s: %s", what, strerror(errno));
}

static int write_words(const struct session_box_spec *spec, const struct run_files *files,
    struct ends *ends, struct err *err)
{
    const struct runtime *rt = spec->runtime;
    if (spec->place)
        return session_backend_words(spec, &ends->package, err);
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    strv_add_all(&argv, &rt->run.session);
    plan_environment(&rt->run, &spec->limits, &env);
    while (!str_eq(rt->run_root.execs.items[ends->exec], argv.items[0]))
        ends->exec++;
    if (spec->image)
        ends->exec = (unsigned)plan_image(&rt->run, spec->image, ends->exec, &argv, &env);
    for (size_t i = 0; i < spec->env->count; i++)
        plan_set_env(&env, spec->env->items[i]);
    ends->may_be_warm = rt->run.session_warm.count && ends->exec == 0 && !spec->mount_count &&
                        !warmth_words_problem(&rt->run, &argv, &env, spec->env);
    return package_write(&(struct package_spec){.argv = &argv, .env = &env, .files = {files}},
        &ends->package, err);
}

/* Without a spec no package is written: a copy needs none. The files are for a new box: later
 * they are there, unless the program has removed them. */
static int open_ends(const struct session_box_spec *spec, const struct run_files *files,
    struct ends *ends, struct err *err)
{
    *ends = (struct ends){-1, {-1, -1}, {-1, -1}, {-1, -1}, 0, false};
    int r = spec ? write_words(spec, files, ends, err) : 0;
    if (r < 0)
        return r;
    if (pipe2(ends->out, O_CLOEXEC) < 0 || pipe2(ends->err, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->channel) < 0 ||
        fcntl(ends->out[0], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(ends->err[0], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(ends->channel[0], F_SETFL, O_NONBLOCK) < 0)
        r = failed(err, "make the pipes of a session");
    if (r < 0)
        ends_done(ends);
    return r;
}

static void take_ends(struct session_box *box, struct ends *ends)
{
    close_fd(&box->out_fd);
    close_fd(&box->err_fd);
    close_fd(&box->channel_fd);
    box->out_fd = take_fd(&ends->out[0]);
    box->err_fd = take_fd(&ends->err[0]);
    box->channel_fd = take_fd(&ends->channel[0]);
}

static void fill_mounts(const struct session_box_spec *spec, struct spawn_box *request)
{
    request->mount_count = (uint32_t)spec->mount_count;
    for (size_t i = 0; i < spec->mount_count; i++) {
        request->mounts[i].source = spec->mounts[i].source;
        request->mounts[i].writable = spec->mounts[i].writable;
        memcpy(request->mounts[i].path, spec->mounts[i].path, sizeof(spec->mounts[i].path));
    }
}

/* Asks hermes-places for a place. The events are those of the spawner. */
static int open_place(const struct session_box_spec *spec, struct session_box *box,
    struct ends *ends, struct err *err)
{
    const struct place_request request = {.row = spec->place_number};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return failed(err, "make a socket");
    const int fds[PLACE_FDS] = {[PLACE_WORDS] = ends->package,
        [PLACE_SOCKET] = pair[1],
        [PLACE_OUT] = ends->out[1],
        [PLACE_ERR] = ends->err[1],
        [PLACE_CHANNEL] = ends->channel[1]};
    int r = fdpass_send_now(spec->places_fd, &request, sizeof(request), fds, PLACE_FDS);
    (void)close(pair[1]);
    if (r < 0) {
        (void)close(pair[0]);
        return err_set(err, ERR_UNAVAILABLE, -r, "hermes-places does not answer; try again");
    }
    box->socket = pair[0];
    take_ends(box, ends);
    return 0;
}

int session_box_open(struct engine *engine, const struct session_box_spec *spec, int network_fd,
    struct session_box *box, struct err *err)
{
    CLEANUP(ends_done) struct ends ends;
    int pair[2];
    size_t index = (size_t)(spec->runtime - engine->runtimes->items);
    int r = open_ends(spec, spec->trust, &ends, err);
    if (r < 0 || spec->place)
        return r < 0 ? r : open_place(spec, box, &ends, err);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return failed(err, "make a socket");
    uint32_t root = (uint32_t)engine->roots[index][ROOT_SESSION];
    if (spec->image) {
        r = image_root_take(engine,
            &(struct image_use){.image = spec->image,
                .runtime = spec->runtime,
                .base = root,
                .owner = spec->owner,
                .is_top = spec->runtime->run.session_forks},
            &box->image, err);
        if (r < 0) {
            (void)close(pair[0]);
            (void)close(pair[1]);
            return r;
        }
        root = image_root_number(box->image);
        ends.may_be_warm = ends.may_be_warm && image_root_is_warm(box->image);
    }
    struct spawn_box request = {.kind = SPAWN_BOX,
        .root = root,
        .exec = ends.exec,
        .owner = spec->owner,
        .flags = engine_session_flags(spec->runtime) | (ends.may_be_warm ? BOX_WARM : 0u) |
                 (network_fd >= 0 ? BOX_NETWORK : 0u)};
    fill_mounts(spec, &request);
    engine_session_limits(&spec->limits, &request.limits);
    int fds[] = {pair[1], ends.package, ends.out[1], ends.err[1], ends.channel[1], network_fd};
    r = spawner_box(&engine->spawner, &request, fds, network_fd >= 0 ? 6 : 5, err);
    (void)close(pair[1]);
    if (r < 0) {
        (void)close(pair[0]);
        return r;
    }
    box->socket = pair[0];
    take_ends(box, &ends);
    return 0;
}

int session_box_restart(struct engine *engine, const struct session_box_spec *spec,
    struct session_box *box, struct err *err)
{
    CLEANUP(ends_done) struct ends ends;
    const struct spawn_command command = {.kind = COMMAND_RESTART};
    int r = open_ends(spec, NULL, &ends, err);
    if (r < 0)
        return r;
    int fds[] = {ends.package, ends.out[1], ends.err[1], ends.channel[1]};
    r = fdpass_send(box->socket, &command, sizeof(command), fds, 4);
    if (r < 0)
        return err_set(
            err, ERR_UNAVAILABLE, -r, "the box of the session has ended; reset the session");
    take_ends(box, &ends);
    return 0;
}

int session_box_fork(const struct session_box *original, bool is_alone, struct session_box *box,
    int ret_fds[SESSION_FORK_FDS], struct err *err)
{
    CLEANUP(ends_done) struct ends ends;
    const struct spawn_command command = {.kind = COMMAND_FORK, .is_alone = is_alone};
    int pair[2];
    int r = open_ends(NULL, NULL, &ends, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return failed(err, "make a socket");
    int fds[] = {pair[1], ends.out[1], ends.err[1], ends.channel[1]};
    r = fdpass_send(original->socket, &command, sizeof(command), fds, 4);
    (void)close(pair[1]);
    box->socket = pair[0];
    box->image = image_root_share(original->image);
    take_ends(box, &ends);
    if (r < 0)
        return err_set(
            err, ERR_UNAVAILABLE, -r, "the box of the session has ended; reset the session");
    ret_fds[0] = take_fd(&ends.out[1]);
    ret_fds[1] = take_fd(&ends.err[1]);
    ret_fds[2] = take_fd(&ends.channel[1]);
    return 0;
}

int session_box_hello(
    const struct session_box *box, int wait_ms, struct spawn_event *ret, int *ret_fd)
{
    struct pollfd ready = {.fd = box->socket, .events = POLLIN};
    unsigned count = 0;
    int fd = -1;
    if (poll(&ready, 1, wait_ms) != 1)
        return -ETIMEDOUT;
    ssize_t n = fdpass_receive(box->socket, ret, sizeof(*ret), &fd, 1, &count);
    *ret_fd = count ? fd : -1;
    return n == (ssize_t)sizeof(*ret) ? 0 : -EPIPE;
}

static void send_command(const struct session_box *box, const struct spawn_command *command)
{
    if (box->socket >= 0)
        (void)send(box->socket, command, sizeof(*command), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void session_box_command(const struct session_box *box, uint32_t kind)
{
    send_command(box, &(struct spawn_command){.kind = kind});
}

void session_box_ask_usage(const struct session_box *box, bool is_idle)
{
    send_command(box, &(struct spawn_command){.kind = COMMAND_USAGE, .is_idle = is_idle});
}

int session_box_event(const struct session_box *box, struct place_event *ret)
{
    ret->words[0] = '\0';
    if (box->socket < 0)
        return -EPIPE;
    ssize_t n = recv(box->socket, ret, sizeof(*ret), MSG_DONTWAIT);
    /* When the spawner closes its side before it has read a command, Linux first reports
     * ECONNRESET and then delivers the events that were sent before. */
    if (n < 0 && errno == ECONNRESET)
        n = recv(box->socket, ret, sizeof(*ret), MSG_DONTWAIT);
    if (n == (ssize_t)sizeof(*ret) || n == (ssize_t)sizeof(ret->event))
        return 1;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
}

void session_box_close(struct session_box *box)
{
    image_root_give(box->image);
    box->image = NULL;
    close_fd(&box->socket);
    close_fd(&box->out_fd);
    close_fd(&box->err_fd);
    close_fd(&box->channel_fd);
}

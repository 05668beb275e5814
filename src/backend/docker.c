/* SPDX-License-Identifier: Apache-2.0 */

/* Containers of Docker or Podman. A container is found by its name; its labels say whose it is
 * and with which settings it was made. One with other settings is refused, never replaced: it
 * may hold work. If the container cannot be opened, that is an error; nothing is ever run
 * elsewhere. */

#include "backend/docker.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    CLOSE_MS = 20000,
    TRIES = 3,
    ARCHIVE_MAX = 16 << 20,
    ALONE_MS = 5000,
    STEP_MS = 50,
};

int docker_path(char *to, size_t size, const char *container, const char *rest)
{
    return snprintf(to, size, "/containers/%s%s", container, rest);
}

int docker_lock(const char *control_dir, bool is_exclusive)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/.docker", control_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, is_exclusive ? LOCK_EX : LOCK_SH) < 0)
        close_fd(&fd);
    return fd;
}

/* The file says that a session has used a container which another session has made. */
static char *used_path(const struct backend *b, const struct docker *d)
{
    return xasprintf("%s/.used-%s", b->control_dir, d->name);
}

static int note_use(const struct backend *b, const struct docker *d)
{
    cleanup_free char *path = used_path(b, d);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : 0;
}

/* Waits a short time until no other session opens a container. */
static bool be_alone(const struct backend *b, struct docker *d)
{
    uint64_t until_ms = clock_ms() + ALONE_MS;
    if (d->lock_fd < 0)
        d->lock_fd = docker_lock(b->control_dir, false);
    while (d->lock_fd >= 0 && flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (clock_ms() >= until_ms)
            return false;
        (void)poll(NULL, 0, STEP_MS);
    }
    return d->lock_fd >= 0;
}

/* A container that is kept may be removed only if no session has used it. */
static bool may_destroy(const struct backend *b, struct docker *d)
{
    cleanup_free char *path = used_path(b, d);
    if (!d->is_made || (b->row->keeps && b->was_joined))
        return false;
    return !b->row->keeps || (be_alone(b, d) && access(path, F_OK) < 0 && errno == ENOENT);
}

static struct docker *own(struct backend *b)
{
    if (!b->own) {
        struct docker *d = xcalloc(1, sizeof(*d));
        d->engine = (struct engine){
            .socket = b->row->socket, .watch_fd = b->watch_fd, .within_ms = ENGINE_MS};
        d->lock_fd = -1;
        docker_names(b, d);
        b->own = d;
    }
    return b->own;
}

static int ask(struct docker *d, const char *method, const char *rest, struct engine_answer *a)
{
    char path[DOCKER_PATH];
    (void)docker_path(path, sizeof(path), d->name, rest);
    return engine_ask(&d->engine, method, path, NULL, false, a);
}

static void destroy(struct docker *d)
{
    struct engine_answer a = {0};
    d->engine.watch_fd = -1;
    d->engine.within_ms = CLOSE_MS;
    (void)ask(d, "DELETE", "?force=1&v=1", &a);
    engine_answer_done(&a);
}

static enum place_error docker_put(struct backend *b)
{
    struct docker *d = own(b);
    struct engine_answer a = {0};
    char path[DOCKER_PATH];
    cleanup_buf struct buf tar;
    buf_init(&tar, ARCHIVE_MAX);
    (void)docker_path(path, sizeof(path), d->name, "/archive?path=/");
    if (docker_archive(b, &tar) < 0)
        return backend_fail(
            b, PLACE_REFUSED, "the far shell is too large for an upload into the container");
    int r = engine_ask(&d->engine, "PUT", path, &tar, true, &a);
    enum place_error error = r < 0 ? engine_failed(&d->engine, b, r) : PLACE_FINE;
    if (!error && a.status != 200)
        error = engine_refused(b, "take the far shell", &a);
    engine_answer_done(&a);
    return error;
}

/* Asks the engine to make the container. `*ret_status` is its answer. */
static enum place_error create_one(
    struct backend *b, struct docker *d, enum docker_disk disk, unsigned *ret_status)
{
    char path[DOCKER_PATH];
    struct engine_answer a = {0};
    (void)snprintf(path, sizeof(path), "/containers/create?name=%s", d->name);
    int r = engine_ask_json(&d->engine, "POST", path, docker_config(b, d, disk), &a);
    enum place_error error = r < 0 ? engine_failed(&d->engine, b, r) : PLACE_FINE;
    *ret_status = r < 0 ? 0 : a.status;
    if (!error && a.status == 404)
        error = backend_fail(b, PLACE_NOT_FOUND,
            "image %s is not on the engine; run: docker pull %s", b->row->image, b->row->image);
    else if (!error && a.status != 201)
        error = engine_refused(b, "make the container", &a);
    engine_answer_done(&a);
    d->is_made = d->is_made || !error;
    return error;
}

/* The first way to bound the disk that this engine has. */
static enum place_error create(struct backend *b, struct docker *d, unsigned *ret_status)
{
    const struct place_limits *limits = &b->request.limits;
    bool is_asked = limits->asked & (1u << PLACE_DISK);
    enum place_error error = PLACE_REFUSED;
    /* Podman takes the option and may ignore it. */
    if (limits->value[PLACE_DISK] && !d->engine.is_podman)
        error = create_one(b, d, DISK_QUOTA, ret_status);
    else
        *ret_status = 500;
    if (error != PLACE_REFUSED || *ret_status == 409)
        return error;
    if (is_asked && b->row->keeps) {
        b->refused = PLACE_DISK;
        return backend_fail(b, PLACE_LIMIT,
            "the engine's storage has no quota; with container_persistent = no the files are "
            "kept in memory, with a limit");
    }
    return create_one(b, d, is_asked ? DISK_TMPFS : DISK_FREE, ret_status);
}

static enum place_error start(struct backend *b, struct docker *d)
{
    struct engine_answer a = {0};
    int r = ask(d, "POST", "/start", &a);
    enum place_error error = r < 0 ? engine_failed(&d->engine, b, r) : PLACE_FINE;
    if (!error && a.status != 204 && a.status != 304)
        error = engine_refused(b, "start the container", &a);
    if (error == PLACE_NOT_FOUND) /* a program or runtime that is missing */
        error = PLACE_REFUSED;
    engine_answer_done(&a);
    return error;
}

/* Memory and processes are never without a limit. */
static enum place_error check_limits(struct backend *b, const json_t *container)
{
    const uint32_t must = 1u << PLACE_MEMORY | 1u << PLACE_PROCESSES;
    b->in_force = docker_in_force(b, container);
    uint32_t lacks = (b->request.limits.asked | must) & ~b->in_force;
    for (uint32_t i = 0; i < PLACE_LIMITS; i++) {
        if (!(lacks & (1u << i)) || (i != PLACE_MEMORY && !b->request.limits.value[i]))
            continue;
        b->refused = i;
        return backend_fail(b, PLACE_LIMIT, "the engine does not enforce %s for the container",
            place_limit_name(i));
    }
    b->takes_stream = json_is_true(
        json_object_get(json_object_get(container, "HostConfig"), "ReadonlyRootfs"));
    return PLACE_FINE;
}

static bool is_state(const json_t *container, const char *name)
{
    return json_is_true(json_object_get(json_object_get(container, "State"), name));
}

/* The container is there: may it be used, and does it run? */
static enum place_error use(
    struct backend *b, struct docker *d, const json_t *container, bool is_again)
{
    const json_t *labels = json_object_get(json_object_get(container, "Config"), "Labels");
    const char *hash = docker_label(labels, "hermes-config");
    if (!docker_is_ours(b, labels))
        return backend_fail(b, PLACE_REFUSED,
            "container %s was not made by this server; it is not touched", d->name);
    if (!str_eq(hash, d->hash))
        return backend_fail(b, PLACE_REFUSED,
            "container %s was made with other settings (%.12s, now %.12s); to begin again: "
            "docker rm -f %s",
            d->name, hash, d->hash, d->name);
    if (is_state(container, "Paused"))
        return backend_fail(b, PLACE_UNREACHABLE,
            "container %s is paused; run: docker unpause %s", d->name, d->name);
    if (!docker_is_isolated(b, container))
        return backend_fail(b, PLACE_REFUSED,
            "the engine made the container with another runtime or network than docker_runtime "
            "and docker_network say");
    bool runs = is_state(container, "Running");
    if (!runs && is_again)
        return backend_fail(
            b, PLACE_LOST, "container %s has stopped, and the shell with it", d->name);
    enum place_error error = check_limits(b, container);
    if (!error && !d->is_made && note_use(b, d) < 0)
        return backend_fail(b, PLACE_UNREACHABLE, "no file can be made in %s", b->control_dir);
    if (error || runs)
        return error;
    if (d->is_made && !b->takes_stream)
        error = docker_put(b);
    return error ? error : start(b, d);
}

static enum place_error docker_open(struct backend *b, bool is_again)
{
    struct docker *d = own(b);
    unsigned status = 0;
    close_fd(&d->lock_fd);
    enum place_error error = engine_hello(&d->engine, b);
    if (error)
        return error;
    d->lock_fd = docker_lock(b->control_dir, false);
    for (int i = 0; i < TRIES; i++) {
        struct engine_answer a = {0};
        int r = ask(d, "GET", "/json", &a);
        error = r < 0             ? engine_failed(&d->engine, b, r)
                : a.status == 200 ? use(b, d, a.json, is_again)
                : a.status != 404 ? engine_refused(b, "find the container", &a)
                : is_again || d->is_made
                    ? backend_fail(b, PLACE_LOST, "container %s was removed", d->name)
                    : create(b, d, &status);
        bool is_there = r == 0 && a.status != 404;
        engine_answer_done(&a);
        /* 409: another session has just made it. A new container is inspected, too. */
        if (is_there || (error && status != 409))
            break;
    }
    return error;
}

static enum place_error stream_error(
    struct backend *b, struct docker *d, unsigned status, const struct engine_answer *a)
{
    if (status == 404)
        return backend_fail(b, PLACE_LOST, "container %s was removed", d->name);
    if (status == 409)
        return backend_fail(
            b, PLACE_UNREACHABLE, "container %s does not run: %s", d->name, a->said);
    return engine_refused(b, "start a program in the container", a);
}

static enum place_error make_exec(struct backend *b, struct docker *d, const char *script)
{
    char path[DOCKER_PATH];
    struct engine_answer a = {0};
    (void)docker_path(path, sizeof(path), d->name, "/exec");
    int r = engine_ask_json(&d->engine, "POST", path,
        json_pack("{s:b, s:b, s:b, s:b, s:[s, s, s], s:s, s:s}", "AttachStdin", 1,
            "AttachStdout", 1, "AttachStderr", 1, "Tty", 0, "Cmd", "/bin/sh", "-c", script,
            "WorkingDir", "/", "User", b->row->user),
        &a);
    enum place_error error = r < 0             ? engine_failed(&d->engine, b, r)
                             : a.status != 201 ? stream_error(b, d, a.status, &a)
                                               : PLACE_FINE;
    const char *id = json_string_value(json_object_get(a.json, "Id"));
    size_t len = id ? strspn(id, "0123456789abcdef") : 0;
    if (!error && (!len || id[len] || len >= sizeof(d->exec)))
        error = backend_fail(b, PLACE_REFUSED, "the engine sent no id for the exec");
    if (!error)
        (void)snprintf(d->exec, sizeof(d->exec), "%s", id);
    engine_answer_done(&a);
    return error;
}

static enum place_error docker_stream(
    struct backend *b, const char *script, struct backend_stream *ret)
{
    struct docker *d = own(b);
    char path[DOCKER_PATH];
    int said[2], fd = -1;
    enum place_error error = make_exec(b, d, script);
    if (error)
        return error;
    (void)snprintf(path, sizeof(path), "/exec/%s/start", d->exec);
    int r = engine_upgrade(&d->engine, path, "{\"Detach\":false,\"Tty\":false}", &fd);
    close_fd(&d->lock_fd);
    if (r < 0)
        return engine_failed(&d->engine, b, r);
    if (pipe2(said, O_CLOEXEC | O_NONBLOCK) < 0) {
        r = -errno;
        (void)close(fd);
        return engine_failed(&d->engine, b, r);
    }
    *ret = (struct backend_stream){.in_fd = fd,
        .out_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
        .err_fd = said[0],
        .said_fd = said[1],
        .pid = -1,
        .pidfd = -1,
        .is_framed = true};
    return PLACE_FINE;
}

/* The engine tells that a program could not be started in the stream, where it looks like
 * output. */
static enum place_error docker_judge(struct backend *b, const char *said)
{
    struct docker *d = own(b);
    struct engine_answer a = {0};
    char path[DOCKER_PATH];
    (void)said;
    (void)snprintf(path, sizeof(path), "/exec/%s/json", d->exec);
    int r = engine_ask(&d->engine, "GET", path, NULL, false, &a);
    json_int_t code = json_integer_value(json_object_get(a.json, "ExitCode"));
    bool has_ended = r == 0 && json_is_false(json_object_get(a.json, "Running"));
    engine_answer_done(&a);
    if (!has_ended)
        return PLACE_UNREACHABLE;
    if (code == 126 || code == 127)
        return backend_fail(b, PLACE_REFUSED,
            "/bin/sh cannot be executed in the container (exit %d)", (int)code);
    return code == 137 ? PLACE_UNREACHABLE : PLACE_REFUSED;
}

/* A container that is kept goes on; docker_tidy() stops it when no session uses it. */
static void docker_close(struct backend *b)
{
    struct docker *d = b->own;
    if (d && may_destroy(b, d))
        destroy(d);
    if (d)
        close_fd(&d->lock_fd);
    free(d);
    b->own = NULL;
}

static enum place_error docker_probe(struct backend *b)
{
    struct engine e = {
        .socket = b->row->socket, .watch_fd = b->watch_fd, .within_ms = ENGINE_PING_MS};
    return engine_hello(&e, b);
}

const struct backend_ops backend_docker = {.open = docker_open,
    .stream = docker_stream,
    .judge = docker_judge,
    .put = docker_put,
    .close = docker_close,
    .probe = docker_probe};

/* SPDX-License-Identifier: Apache-2.0 */

/* See box.h. The order of a copy is that of session/copy.c: the interpreter is asked whether it
 * can be copied, the spawner makes a box, the interpreter gets the descriptors of its copy and
 * forks, the spawner reports that the copy is confined. The run's package, stdin, stdout and
 * stderr go to the copy itself, never to the template. */

#include "template/box.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/str.h"
#include "run/engine_state.h"
#include "run/image_root.h"
#include "run/package.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ANSWER = 200,      /* bytes of an answer of the interpreter: y or n, and why */
    READY_MS = 60000,  /* for its start and its imports */
    SLICE_MS = 50,     /* between two looks at `cancel` */
    ASK_MS = 5000,     /* for an answer of the interpreter, which has nothing else to do */
    CONFINE_MS = 5000, /* for the spawner to make a copy */
};

void template_box_init(struct template_box *box)
{
    *box = (struct template_box){.socket = -1, .channel = -1, .text_fd = -1};
}

struct run_limits template_limits(
    const struct engine *engine, const struct runtime *runtime, uint64_t memory_mb)
{
    const struct run_limits *max = &engine->maxima;
    struct run_limits limits = {
        .memory_mb = memory_mb < max->memory_mb ? memory_mb : max->memory_mb};
    struct run_limits plain = {0};
    limits_fill(&limits, &runtime->limits);
    limits_fill(&plain, &runtime->limits);
    /* A copy can only lower these limits. Threads get stacks of the size that was allowed when
     * the interpreter started, so the template has the usual limit of stacks. */
    limits.stack_mb = plain.stack_mb;
    limits.open_files = max->open_files;
    limits.file_size_mb = max->file_size_mb;
    limits_cap(&limits, max);
    return limits;
}

static int fail(char *reason, int error, const char *what)
{
    (void)snprintf(reason, TEMPLATE_REASON, "%s: %s", what, strerror(-error));
    return error;
}

/* Reads one answer. 0: yes; 1: no, and *reason says why. */
static int hear(int fd, const atomic_bool *cancel, int wait_ms, char *reason)
{
    char answer[ANSWER] = "";
    size_t len = 0;
    uint64_t until_ms = clock_ms() + (uint64_t)wait_ms;
    while (len < sizeof(answer)) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now = clock_ms();
        if (now >= until_ms || (cancel && *cancel))
            return now >= until_ms ? -ETIMEDOUT : -ECANCELED;
        uint64_t left = until_ms - now;
        if (poll(&ready, 1, left < SLICE_MS ? (int)left : SLICE_MS) != 1)
            continue;
        ssize_t n = recv(fd, answer + len, sizeof(answer) - len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -EPIPE;
        len += n > 0 ? (size_t)n : 0;
    }
    if (answer[0] == 'y')
        return 0;
    answer[ANSWER - 1] = '\0';
    for (size_t i = 1; answer[i]; i++) /* the answer goes to the log, so it must be printable */
        answer[i] = answer[i] < ' ' || answer[i] > '~' ? '?' : answer[i];
    (void)snprintf(reason, TEMPLATE_REASON, "%s", answer + 1);
    return 1;
}

/* The last line that the interpreter wrote before it ended. */
static void add_last_words(const struct template_box *box, char *reason)
{
    char text[4096];
    ssize_t n = read(box->text_fd, text, sizeof(text) - 1);
    size_t len = n > 0 ? (size_t)n : 0;
    while (len && text[len - 1] == '\n')
        len--;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    size_t used = strlen(reason);
    if (line[0] && used + 3 < TEMPLATE_REASON)
        (void)snprintf(reason + used, TEMPLATE_REASON - used, ": %.150s", line);
    for (char *c = reason + used; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c;
}

static int write_words(const struct template_spec *spec, int *ret_job, struct err *err)
{
    const struct runtime *rt = spec->runtime;
    const struct run_limits limits = template_limits(spec->engine, rt, spec->memory_mb);
    struct engine_image image = {.runtime = rt, .image = (struct run_image *)spec->image};
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    strv_add(&argv, rt->run_root.execs.items[0]);
    strv_add_all(&argv, &rt->run.warm);
    strv_add(&argv, "--template"); /* no name of a module */
    plan_environment(&rt->run, &limits, &env);
    image.preload = spec->image->preload; /* borrowed */
    engine_zygote_words(&image, &argv, &env);
    return package_write(&(struct package_spec){.argv = &argv, .env = &env}, ret_job, err);
}

static int request(const struct template_spec *spec, struct template_box *box, struct err *err)
{
    struct engine *e = spec->engine;
    size_t index = (size_t)(spec->runtime - e->runtimes->items);
    cleanup_close int package = -1;
    cleanup_close int theirs = -1;
    cleanup_close int text = -1;
    cleanup_close int channel = -1;
    int pair[2];
    int r = write_words(spec, &package, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->socket = pair[0];
    theirs = pair[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->channel = pair[0];
    channel = pair[1];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    box->text_fd = pair[0];
    text = pair[1];
    const struct image_use use = {.image = spec->image,
        .runtime = spec->runtime,
        .base = (unsigned)e->roots[index][ROOT_SESSION],
        .owner = spec->owner,
        .is_top = true};
    if ((r = image_root_take(e, &use, &box->image, err)) < 0)
        return r;
    struct spawn_box message = {.kind = SPAWN_BOX,
        .root = image_root_number(box->image),
        .owner = spec->owner,
        .flags = engine_session_flags(spec->runtime)};
    box->limits = template_limits(e, spec->runtime, spec->memory_mb);
    engine_session_limits(&box->limits, &message.limits);
    const int fds[] = {theirs, package, text, text, channel};
    return spawner_box(&e->spawner, &message, fds, 5, err);
}

/* Waits for an event of a kind. Other events are passed over, except the two ends. */
static int await(int socket, uint32_t kind, int wait_ms, struct spawn_event *ret, int *ret_fd)
{
    uint64_t until_ms = clock_ms() + (uint64_t)wait_ms;
    for (;;) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        uint64_t now = clock_ms();
        unsigned count = 0;
        int fd = -1;
        if (now >= until_ms)
            return -ETIMEDOUT;
        if (poll(&ready, 1, (int)(until_ms - now)) != 1)
            continue;
        ssize_t n = fdpass_receive_now(socket, ret, sizeof(*ret), &fd, 1, &count);
        if (n == -EAGAIN || n == -EINTR)
            continue;
        if (n != (ssize_t)sizeof(*ret))
            return -EPIPE;
        if (ret->kind == kind && (!ret_fd || count)) {
            if (ret_fd)
                *ret_fd = take_fd(&fd);
            close_fd(&fd);
            return 0;
        }
        close_fd(&fd);
        if (ret->kind == EVENT_FAILED)
            return ret->error ? ret->error : -EIO;
        if (ret->kind == EVENT_ENDED)
            return -ECHILD;
    }
}

void template_box_ask(const struct template_box *box)
{
    const struct spawn_command command = {.kind = COMMAND_USAGE, .is_idle = true};
    (void)send(box->socket, &command, sizeof(command), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void measure(struct template_box *box)
{
    struct spawn_event usage = {0};
    template_box_ask(box);
    if (await(box->socket, EVENT_USAGE, ASK_MS, &usage, NULL) < 0)
        return;
    box->memory_bytes = usage.memory_bytes;
    box->cpu_ns = usage.cpu_ns;
}

int template_box_open(
    const struct template_spec *spec, struct template_box *ret, char reason[TEMPLATE_REASON])
{
    struct spawn_event event;
    struct err err = {0};
    struct template_box box;
    template_box_init(&box);
    reason[0] = '\0';
    int r = request(spec, &box, &err);
    if (r < 0)
        (void)snprintf(
            reason, TEMPLATE_REASON, "%.190s", err.message[0] ? err.message : strerror(-r));
    if (r == 0 && (r = await(box.socket, EVENT_STARTED, READY_MS, &event, NULL)) < 0)
        (void)fail(reason, r, "its box did not start");
    if (r == 0) {
        r = hear(box.channel, spec->cancel, READY_MS, reason);
        if (r < 0) {
            (void)fail(reason, r, "its interpreter did not get ready");
            add_last_words(&box, reason);
        }
        r = r > 0 ? -EPERM : r;
    }
    if (r < 0) {
        template_box_close(&box);
        return r;
    }
    measure(&box);
    close_fd(&box.text_fd);
    *ret = box;
    return 0;
}

/* Asks the interpreter; with descriptors it is asked to fork. */
static int ask(const struct template_box *box, const int *fds, unsigned count, char *reason)
{
    int r = fdpass_send_now(box->channel, "f", 1, fds, count);
    r = r < 0 ? r : hear(box->channel, NULL, ASK_MS, reason);
    if (r < 0)
        (void)fail(reason, r, "its interpreter did not answer");
    return r > 0 ? -EPERM : r;
}

int template_box_copy(struct template_box *box, const struct template_use *use,
    struct template_copy *ret, char reason[TEMPLATE_REASON])
{
    struct spawn_command command = {.kind = COMMAND_FORK};
    struct spawn_event event;
    cleanup_close int socket = -1;
    cleanup_close int theirs = -1;
    cleanup_close int channel = -1;
    cleanup_close int box_channel = -1;
    cleanup_close int hello = -1;
    int pair[2];
    limits_to_spawn(use->limits, &command.limits);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail(reason, -errno, "no socket");
    socket = pair[0];
    theirs = pair[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fail(reason, -errno, "no socket");
    channel = pair[0];
    box_channel = pair[1];
    int r = ask(box, NULL, 0, reason);
    if (r < 0)
        return r;
    const int fds[] = {theirs, use->out_fd, use->err_fd, box_channel, use->in_fd};
    r = fdpass_send_now(box->socket, &command, sizeof(command), fds, use->in_fd < 0 ? 4 : 5);
    if (r == 0)
        r = await(socket, EVENT_FORKING, ASK_MS, &event, &hello);
    if (r < 0) {
        (void)send(box->channel, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        return fail(reason, r, "the spawner cannot make a copy");
    }
    /* In place of stdout and stderr, too: nothing of the run goes to the template. */
    const int forked[] = {box_channel, box_channel, box_channel, hello};
    if ((r = ask(box, forked, 4, reason)) < 0)
        return r;
    close_fd(&hello);
    close_fd(&box_channel);
    if ((r = await(socket, EVENT_STARTED, CONFINE_MS, &event, NULL)) < 0) {
        (void)snprintf(reason, TEMPLATE_REASON, "cannot %s: %s",
            spawner_step_text(event.kind == EVENT_FAILED ? event.step : STEP_COPY_CHECK),
            strerror(-r));
        return r == -EAGAIN ? -EIO : r;
    }
    *ret = (struct template_copy){
        .socket = take_fd(&socket), .channel = take_fd(&channel), .started = event};
    return 0;
}

bool template_box_lives(struct template_box *box)
{
    struct pollfd socket = {.fd = box->socket, .events = POLLIN};
    while (box->socket >= 0 && poll(&socket, 1, 0) == 1) {
        struct spawn_event event;
        ssize_t n = recv(box->socket, &event, sizeof(event), MSG_DONTWAIT);
        if (n != (ssize_t)sizeof(event) || event.kind != EVENT_USAGE)
            return false;
        box->cpu_ns = event.cpu_ns;
    }
    return box->socket >= 0;
}

void template_box_close(struct template_box *box)
{
    image_root_give(box->image);
    close_fd(&box->socket);
    close_fd(&box->channel);
    close_fd(&box->text_fd);
    template_box_init(box);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* A place behind a program of the operator's that speaks frames (docs/internals/plugins.md). A
 * process between the relay and that program translates (plugin_talk.c). A place that outlives
 * its sessions has one name; sessions that use it hold a lock, and the last one closes it. */

#include "backend/plugin.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "base/strv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ENV_MAX = 64 << 10,
    END_MS = 1000, /* from the end of its stdin to the end of the plug-in */
    SLACK_MS = 5000,
    /* And the time for opening: a place that is being made can be closed only afterwards. */
    CLOSE_MS = PLUGIN_READY_MS + PLUGIN_STREAM_MS + PLUGIN_CLOSE_MS + SLACK_MS,
};

static const char OPENED[] = "opened\n";

static uint32_t enforced_by(const struct plugin_ready *ready)
{
    static const uint8_t limits[PLACE_LIMITS] = {[PLACE_CPUS] = PLUGIN_CPU,
        [PLACE_MEMORY] = PLUGIN_MEMORY,
        [PLACE_PROCESSES] = PLUGIN_PIDS,
        [PLACE_DISK] = PLUGIN_DISK};
    uint32_t bits = 0;
    for (unsigned i = 0; i < PLACE_LIMITS; i++)
        bits |= ready->enforced & (1u << limits[i]) ? 1u << i : 0;
    return bits;
}

__attribute__((format(printf, 3, 4))) static enum place_error refuse(
    struct plugin_verdict *verdict, enum place_error error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(verdict->words, sizeof(verdict->words), format, args);
    va_end(args);
    return verdict->error = error;
}

/* Checks that the plug-in declares what the settings and the request ask for. */
static enum place_error check(
    const struct plugin_order *order, const struct plugin_ready *ready)
{
    const struct backend *b = order->b;
    const struct place_limits *limits = &b->request.limits;
    struct plugin_verdict *verdict = order->verdict;
    uint32_t enforced = enforced_by(ready);
    if (!b->row->is_open && !ready->is_isolated)
        return refuse(verdict, PLACE_REFUSED,
            "the plug-in %s declares no isolation, and `isolated = yes` asks for it",
            ready->name);
    if (str_eq(b->row->network, "none") && !(ready->enforced & 1u << PLUGIN_NETWORK))
        return refuse(verdict, PLACE_REFUSED,
            "the plug-in %s cannot keep a place without a network", ready->name);
    for (unsigned i = 0; i < PLACE_LIMITS; i++) {
        uint32_t bit = 1u << i;
        if (limits->value[i] && (enforced & bit))
            verdict->in_force |= bit;
        else if (limits->asked & bit) {
            verdict->limit = i;
            return refuse(verdict, PLACE_LIMIT, "the plug-in %s cannot enforce %s", ready->name,
                place_limit_name(i));
        }
    }
    return PLACE_FINE;
}

static json_t *request(const struct plugin_order *order)
{
    const struct backend *b = order->b;
    const struct place_row *row = b->row;
    const uint32_t *value = b->request.limits.value;
    char hash[BACKEND_HASH], name[PLACE_TEXT];
    backend_config_hash(b, hash);
    backend_place_name(b, name);
    json_t *asked = json_array();
    for (unsigned i = 0; i < PLACE_LIMITS; i++)
        if (b->request.limits.asked & 1u << i)
            (void)json_array_append_new(asked, json_string(place_limit_name(i)));
    return json_pack("{s:s, s:s, s:f, s:i, s:i, s:i, s:o, s:b, s:s, s:i, s:b, s:b}", "name",
        name, "image", row->image, "cpu", value[PLACE_CPUS] / 1000.0, "memory_mb",
        (int)value[PLACE_MEMORY], "disk_mb", (int)value[PLACE_DISK], "processes",
        (int)value[PLACE_PROCESSES], "asked", asked, "network", !str_eq(row->network, "none"),
        "config_hash", hash, "lifetime_s", (int)row->lifetime_s, "keep", (int)row->keeps,
        "again", order->is_again);
}

/* Words with spaces between. */
static struct strv split(const char *text)
{
    struct strv words = {0};
    cleanup_free char *copy = xstrdup(text);
    for (char *at = copy, *word; (word = strsep(&at, " "));) {
        if (word[0])
            strv_add(&words, word);
    }
    return words;
}

/* Lines NAME=VALUE; # begins a comment. */
static int read_env(const char *path, struct strv *ret)
{
    cleanup_buf struct buf text;
    buf_init(&text, ENV_MAX);
    int r = path[0] ? fs_read_file(AT_FDCWD, path, &text) : 0;
    if (r < 0)
        return r;
    for (char *at = text.data, *line; at && (line = strsep(&at, "\n"));) {
        if (line[0] && line[0] != '#' && strchr(line, '=') && line[0] != '=')
            strv_add(ret, line);
    }
    return 0;
}

/* Waits for the end of the plug-in, and ends what it has started. */
static void end_program(struct backend_stream *plugin)
{
    siginfo_t info;
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, plugin->pid, 0);
    struct pollfd dead = {fd, POLLIN, 0};
    close_fd(&plugin->out_fd);
    if (fd >= 0 && poll(&dead, 1, END_MS) > 0)
        (void)waitid(P_PID, (id_t)plugin->pid, &info, WEXITED | WNOWAIT);
    (void)kill(-plugin->pid, SIGKILL); /* its group is its own, and it is not reaped yet */
    (void)kill(plugin->pid, SIGKILL);
    backend_stream_close(plugin);
}

struct bridge {
    struct plugin_order order;
    struct strv argv, env;
    pid_t parent;
};

/* The state of the plug-in in the relay's process. */
struct plugin_own {
    struct plugin_verdict *verdict;
    struct backend_stream stream; /* to the process that talks, until it is handed out */
    pid_t pid;
    int lock_fd; /* -1: not locked yet. The process that talks inherits it. */
};

enum { LOCK_FD = 3 };

static void say_opened(const struct plugin_order *order)
{
    (void)order;
    ssize_t n = write(STDERR_FILENO, OPENED, sizeof(OPENED) - 1);
    (void)n;
}

static bool is_last(const struct plugin_order *order)
{
    return backend_is_last(order->lock_fd);
}

static _Noreturn void run_bridge(const void *context, int in, int out, int err)
{
    struct bridge bridge = *(const struct bridge *)context;
    struct plugin_order *order = &bridge.order;
    struct plugin_verdict *verdict = order->verdict;
    struct backend_stream plugin;
    (void)dup2(in, 0);
    (void)dup2(out, 1);
    (void)dup2(err, 2);
    if ((order->lock_fd != LOCK_FD && dup3(order->lock_fd, LOCK_FD, O_CLOEXEC) < 0) ||
        sys_close_range(LOCK_FD + 1, ~0u, 0) < 0)
        _exit(1);
    order->lock_fd = LOCK_FD;
    (void)fcntl(0, F_SETFL, O_NONBLOCK);
    (void)fcntl(1, F_SETFL, O_NONBLOCK);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int r = getppid() == bridge.parent ? 0 : -ECANCELED;
    if (r == 0)
        r = backend_start(
            &(struct backend_program){bridge.argv.items, NULL, &bridge.env, true}, &plugin);
    if (r < 0) {
        (void)refuse(verdict, PLACE_REFUSED, "the plug-in cannot be started: %s", strerror(-r));
        _exit(1);
    }
    plugin_talk(order, &plugin, 0, 1);
    end_program(&plugin);
    _exit(0);
}

static struct plugin_own *own_of(struct backend *b)
{
    struct plugin_own *own = b->own;
    if (own)
        return own;
    void *shared = mmap(NULL, sizeof(struct plugin_verdict), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    own = b->own = xcalloc(1, sizeof(*own));
    *own = (struct plugin_own){.verdict = shared, .pid = -1, .lock_fd = -1};
    backend_stream_init(&own->stream);
    return own;
}

/* Starts the process that talks. */
static int start(struct backend *b, struct plugin_own *own, bool is_again)
{
    sigset_t term, old;
    struct bridge bridge = {.order = {.b = b,
                                .verdict = own->verdict,
                                .is_again = is_again,
                                .destroys = !b->row->keeps,
                                .open_ms = place_open_ms(b->row),
                                .lock_fd = own->lock_fd,
                                .check = check,
                                .request = request,
                                .opened = say_opened,
                                .is_last = is_last},
        .argv = split(b->row->command),
        .parent = getpid()};
    int r = read_env(b->row->env_file, &bridge.env);
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, &old);
    if (r == 0)
        r = backend_fork(run_bridge, &bridge, &own->stream);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    strv_done(&bridge.argv);
    strv_done(&bridge.env);
    own->pid = own->stream.pid;
    own->stream.pid = -1; /* close() ends it, not the end of the stream */
    return r;
}

/* Until the place is open, or it is known why not. */
static enum place_error await_open(struct backend *b, struct plugin_own *own)
{
    uint64_t until_ms = clock_ms() + PLUGIN_READY_MS + place_open_ms(b->row) + SLACK_MS;
    char word[sizeof(OPENED)];
    for (;;) {
        uint64_t now = clock_ms();
        struct pollfd fds[] = {{own->stream.err_fd, POLLIN, 0}, {b->watch_fd, 0, 0}};
        ssize_t n = read(own->stream.err_fd, word, sizeof(OPENED) - 1);
        if (n == 0 && own->verdict->error == PLACE_LIMIT)
            b->refused = own->verdict->limit;
        if (n == 0)
            return own->verdict->error
                       ? backend_fail(b, own->verdict->error, "%s", own->verdict->words)
                       : backend_fail(b, PLACE_UNREACHABLE,
                             "the plug-in was ended before the place was open");
        if (n > 0) {
            b->in_force = own->verdict->in_force;
            return PLACE_FINE;
        }
        if (now >= until_ms)
            return backend_fail(b, PLACE_UNREACHABLE, "the place did not open in time");
        if (poll(fds, 2, (int)(until_ms - now)) > 0 && fds[1].revents)
            return backend_fail(b, PLACE_UNREACHABLE, "the session has ended");
    }
}

static enum place_error plugin_open(struct backend *b, bool is_again)
{
    struct plugin_own *own = own_of(b);
    if (!own)
        return backend_fail(
            b, PLACE_UNREACHABLE, "there is no memory for a plug-in; try again later");
    if (own->pid > 0) /* the plug-in of a cut connection; the place stays as it is */
        process_await(own->pid, 0);
    own->pid = -1;
    backend_stream_close(&own->stream);
    if (is_again && own->verdict->error == PLACE_LOST) /* no process is started to ask again */
        return backend_fail(b, PLACE_LOST, "%s", own->verdict->words);
    *own->verdict = (struct plugin_verdict){0};
    int r = own->lock_fd < 0
                ? backend_lock(b, clock_ms() + place_open_ms(b->row), &own->lock_fd)
                : 0;
    if (r == 0)
        r = start(b, own, is_again);
    if (r < 0)
        return backend_fail(b, r == -ETIMEDOUT ? PLACE_UNREACHABLE : PLACE_REFUSED,
            "the plug-in cannot be started: %s", strerror(-r));
    enum place_error error = await_open(b, own);
    if (error)
        backend_stream_close(&own->stream);
    return error;
}

static enum place_error plugin_stream(
    struct backend *b, const char *script, struct backend_stream *ret)
{
    struct plugin_own *own = b->own;
    uint64_t until_ms = clock_ms() + SLACK_MS;
    *ret = own->stream;
    backend_stream_init(&own->stream);
    int r = backend_send(b, ret, script, strlen(script), until_ms);
    if (r == 0)
        r = backend_send(b, ret, "\n", 1, until_ms);
    return r < 0 ? backend_fail(
                       b, PLACE_UNREACHABLE, "the plug-in was ended before the shell began")
                 : PLACE_FINE;
}

static enum place_error plugin_judge(struct backend *b, const char *said)
{
    const struct plugin_own *own = b->own;
    (void)said;
    if (!own->verdict->error)
        return PLACE_REFUSED; /* the stream ended before a far shell was there */
    return backend_fail(b, own->verdict->error, "%s", own->verdict->words);
}

static bool plugin_why(struct backend *b)
{
    const struct plugin_own *own = b->own;
    if (own->verdict->error)
        (void)backend_fail(b, own->verdict->error, "%s", own->verdict->words);
    return own->verdict->error != PLACE_FINE;
}

static void plugin_close(struct backend *b)
{
    struct plugin_own *own = b->own;
    if (!own)
        return;
    if (own->pid > 0) {
        (void)kill(own->pid, SIGTERM); /* before its pipe ends: the session is over */
        backend_stream_close(&own->stream);
        process_await(own->pid, (int)place_open_ms(b->row) + CLOSE_MS);
    }
    own->pid = -1;
    close_fd(&own->lock_fd);
}

const struct backend_ops backend_plugin = {.open = plugin_open,
    .stream = plugin_stream,
    .judge = plugin_judge,
    .why = plugin_why,
    .close = plugin_close};

/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-server. hermes-monitor starts it with a socket on descriptor 3. The server receives
 * its sockets and settings there, gives up every right it does not need, and serves until it
 * gets a signal or the monitor is gone. */

#include "attack/case.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/str.h"
#include "http/confine.h"
#include "http/greet.h"
#include "http/openapi.h"
#include "http/server.h"
#include "mcp/mcp.h"
#include "mcp/ready.h"
#include "proto/handover.h"
#include "service/service.h"
#include "state/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* Used by keep_heaps_small(): bytes, and the number of malloc arenas. */
enum { LARGE_BLOCK = 256 << 10, HEAPS = 4 };

struct hello {
    int fds[FDPASS_MAX];
    unsigned count;
};

static int receive_hello(struct hello *hello, struct err *err)
{
    enum handover_kind kind;
    int r = handover_receive(HANDOVER_FD, &kind, hello->fds, &hello->count);
    if (r <= 0 || kind != HANDOVER_HELLO || hello->count < HELLO_LISTEN)
        return err_set(err, ERR_INTERNAL, r < 0 ? -r : EPROTO,
            "hermes-server is started by hermes-monitor; run `hermes serve`");
    return 0;
}

static int read_settings(struct state *s, const struct hello *hello, struct err *err)
{
    cleanup_buf struct buf settings;
    cleanup_buf struct buf keys;
    struct strv problems = {0};
    buf_init(&settings, HANDOVER_MAX_TEXT);
    buf_init(&keys, HANDOVER_MAX_TEXT);
    int r = handover_read_text(hello->fds[HELLO_SETTINGS], &settings);
    if (r == 0)
        r = handover_read_text(hello->fds[HELLO_KEYS], &keys);
    if (r == 0)
        r = config_load_text(
            &s->config, settings.data ? settings.data : "", settings.len, &problems);
    if (r == 0 && keys.len)
        keys_add_text(&s->keys, "keys", keys.data, keys.len, &problems);
    if (r < 0 || problems.count)
        r = err_set(err, ERR_INTERNAL, EINVAL, "settings: %s",
            problems.count ? problems.items[0] : strerror(-r));
    strv_done(&problems);
    return r;
}

/* hermes-prepare has found the languages. This user may be unable to read their directories. */
static int read_runtimes(struct state *s, const struct hello *hello, struct err *err)
{
    cleanup_buf struct buf packed;
    buf_init(&packed, HANDOVER_MAX_TEXT);
    int r = handover_read_text(hello->fds[HELLO_RUNTIMES], &packed);
    return r < 0 ? err_set(err, ERR_INTERNAL, -r, "cannot read the languages")
                 : runtime_unpack(&packed, &s->runtimes, err);
}

/* The state directory belongs to root; the server has a directory in it. */
static void enter_own_dir(struct config *config)
{
    char *own = xasprintf("%s/server", config->state_dir);
    free(config->state_dir);
    config->state_dir = own;
}

/* The file of registry_ca, which the server cannot read later. */
static int read_certificates(struct state *s, struct err *err)
{
    cleanup_buf struct buf text;
    buf_init(&text, HANDOVER_MAX_TEXT);
    if (!s->config.registry_ca[0])
        return 0;
    int r = fs_read_file(AT_FDCWD, s->config.registry_ca, &text);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r,
            "registry_ca: the server's user cannot read %s: %s", s->config.registry_ca,
            strerror(-r));
    s->registry_ca = xstrndup(text.data ? text.data : "", text.len);
    return 0;
}

/* No thread may exist before confine_rest(). */
static int prepare(struct state *s, struct hello *hello, struct err *err)
{
    cleanup_buf struct buf table;
    buf_init(&table, HANDOVER_MAX_TEXT);
    int r = read_settings(s, hello, err);
    if (r == 0)
        r = read_runtimes(s, hello, err);
    if (r == 0 && (r = handover_read_text(hello->fds[HELLO_TABLE], &table)) < 0)
        (void)err_set(err, ERR_INTERNAL, -r, "cannot read the engine's table");
    if (r == 0)
        r = state_secrets_read_trust(s, hello->fds[HELLO_TRUST], err);
    if (r == 0)
        r = confine_identity(err);
    if (r < 0)
        return r;
    enter_own_dir(&s->config);
    struct engine_options options = {.runtimes = &s->runtimes,
        .dirs.state = s->config.state_dir,
        .maxima = s->config.maxima,
        .source_count = s->config.mounts.count,
        .cache = {.max_bytes = s->config.cache_mb << 20, .shared = s->config.cache_shared}};
    s->reach_fd = hello->fds[HELLO_REACH];
    s->places_fd = hello->fds[HELLO_PLACES];
    s->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    s->cases_dir = attack_cases_dir(NULL);
    if ((r = read_certificates(s, err)) < 0)
        return r;
    if ((r = confine_rest(
             s->config.state_dir, s->config.seed_dir, &s->runtimes, s->cases_dir, err)) < 0 ||
        (r = engine_attach(&s->engine, &options, hello->fds[HELLO_CONTROL], &table, err)) < 0)
        return r;
    return service_open(s, err);
}

/* Output and bodies of several megabytes are allocated and freed on hundreds of threads. By
 * default glibc raises its mmap threshold and keeps such blocks in the arenas. With a fixed
 * threshold they are mapped, and unmapped at once. */
static void keep_heaps_small(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BLOCK);
    (void)mallopt(M_ARENA_MAX, HEAPS);
}

static int block_signals(void)
{
    sigset_t set;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Handles a message from the monitor. False when the monitor is gone. */
static bool on_monitor(struct state *s)
{
    enum handover_kind kind;
    int fds[FDPASS_MAX];
    unsigned count;
    int r = handover_receive(HANDOVER_FD, &kind, fds, &count);
    if (r <= 0)
        return false;
    if (kind == HANDOVER_SPAWNER && count == 1) {
        r = engine_reattach(s->engine, fds[0]);
        s->metrics.spawner_restarts++;
        log_event(LOG_WARN, "new spawner", "result", r < 0 ? strerror(-r) : "ok", (char *)NULL);
    }
    return true;
}

/* Serves until a signal comes or the monitor is gone. Returns the grace period in milliseconds.
 */
static uint64_t serve(struct state *s, int signal_fd)
{
    struct pollfd fds[] = {{HANDOVER_FD, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    for (;;) {
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents)
            return s->config.grace_s * 1000;
        if (fds[0].revents && !on_monitor(s))
            return 0;
    }
}

/* Prints the API document with the bounds that hold unless the operator sets others. */
static int print_openapi(void)
{
    struct run_limits maxima;
    struct err err = {0};
    limits_maxima(&maxima);
    cleanup_free char *text = openapi_make(&maxima, &err);
    if (!text || puts(text) < 0) {
        (void)fprintf(stderr, "hermes-server: %s\n", text ? strerror(errno) : err.message);
        return 125;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && str_eq(argv[1], "--openapi"))
        return print_openapi();
    static struct state state;
    struct hello hello = {0};
    struct err err = {0};
    struct server *server = NULL;
    int signal_fd = block_signals();
    (void)umask(077);
    /* libarchive needs a UTF-8 locale for file names. Nothing else depends on the locale. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)fcntl(HANDOVER_FD, F_SETFD, FD_CLOEXEC);
    process_raise_descriptors(); /* a run takes about ten */
    keep_heaps_small();
    int r = receive_hello(&hello, &err);
    if (r == 0)
        r = prepare(&state, &hello, &err);
    if (r == 0)
        state.mcp = mcp_new(&state);
    if (r == 0)
        r = server_start(
            &server, &state, hello.fds + HELLO_LISTEN, hello.count - HELLO_LISTEN, &err);
    if (r < 0) {
        log_event(
            LOG_ERROR, "cannot start", "field", err.field, "reason", err.message, (char *)NULL);
        return 125;
    }
    (void)handover_send(HANDOVER_FD, HANDOVER_READY, NULL, 0);
    greet(&state, hello.fds + HELLO_LISTEN, hello.count - HELLO_LISTEN);
    uint64_t grace_ms = serve(&state, signal_fd);
    log_event(LOG_INFO, "stopping", (char *)NULL);
    server_stop(server, grace_ms);
    mcp_stop(state.mcp);
    ready_stop(state.mcp);
    service_close(&state);
    return 0;
}

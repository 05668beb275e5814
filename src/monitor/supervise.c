/* SPDX-License-Identifier: Apache-2.0 */

/* Starting the two programs, and starting either again. The spawner's table is registered and
 * sealed before the server exists; a new spawner gets the same table, and the server learns its
 * control socket. A new server gets a new spawner: no box of the old server's goes on. One
 * poll() covers signals, the server's socket and the next restart. */

#include "monitor/monitor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    /* A program that dies is restarted after BACKOFF_MIN_MS. The wait doubles with each death
     * up to BACKOFF_MAX_MS, and starts over after STABLE_MS without one. */
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 10000,
    STABLE_MS = 30000,
    STOP_EXTRA_MS = 10000, /* beyond the grace period, before SIGKILL */
    KILL_AGAIN_MS = 1000
};

/* When a program that died may be restarted. */
struct backoff {
    uint64_t started_ms;
    uint64_t wait_ms;
    uint64_t due_ms; /* 0: it is running */
};

struct supervisor {
    struct monitor *monitor;
    int signal_fd;
    int channel; /* handover socket to the server; -1 without one */
    pid_t server;
    bool is_ready;  /* this server has sent HANDOVER_READY */
    bool was_ready; /* an earlier server did */
    bool is_stopping;
    uint64_t kill_ms; /* when a server that does not stop gets SIGKILL */
    int status;       /* exit status of the monitor */
    struct backoff server_backoff, spawner_backoff;
};

static void backoff_began(struct backoff *b)
{
    b->started_ms = clock_ms();
    b->due_ms = 0;
}

static void backoff_died(struct backoff *b)
{
    uint64_t now = clock_ms();
    bool stable = now - b->started_ms > STABLE_MS;
    b->wait_ms = stable || !b->wait_ms ? BACKOFF_MIN_MS : b->wait_ms * 2;
    if (b->wait_ms > BACKOFF_MAX_MS)
        b->wait_ms = BACKOFF_MAX_MS;
    b->due_ms = now + b->wait_ms;
}

/* Starts a spawner, registers and seals its table. *ret_changed says whether the table differs
 * from the one that the server has. */
static int start_spawner(struct supervisor *s, bool *ret_changed)
{
    struct monitor *m = s->monitor;
    struct err err = {0};
    cleanup_buf struct buf table;
    buf_init(&table, HANDOVER_MAX_TEXT);
    int r = engine_open(&m->engine, &m->engine_options, &err);
    if (r == 0 && (r = engine_write_table(m->engine, &table)) < 0)
        (void)err_set(&err, ERR_INTERNAL, -r, "the table of roots is too large");
    if (r < 0) {
        log_event(LOG_ERROR, "cannot start the spawner", "reason", err.message, (char *)NULL);
        engine_close(m->engine);
        m->engine = NULL;
        backoff_died(&s->spawner_backoff);
        return r;
    }
    *ret_changed =
        table.len != m->table.len || memcmp(table.data, m->table.data, table.len) != 0;
    buf_done(&m->table);
    m->table = table;
    table = (struct buf){0};
    backoff_began(&s->spawner_backoff);
    return 0;
}

/* Our environment without secret settings, for the server. */
static char **server_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **env = xcalloc(count + 1, sizeof(*env));
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        bool secret = false;
        for (size_t row = 0; row < config_count; row++) {
            for (size_t k = 0; k < CONFIG_MAX_ENV && config_table[row].env[k]; k++) {
                size_t len = strlen(config_table[row].env[k]);
                secret =
                    secret || (config_table[row].secrecy != CONFIG_PUBLIC &&
                                  strncmp(environ[i], config_table[row].env[k], len) == 0 &&
                                  environ[i][len] == '=');
            }
        }
        if (!secret)
            env[used++] = environ[i];
    }
    return env;
}

static void exec_server(int channel)
{
    char *argv[] = {(char *)"hermes-server", NULL};
    sigset_t none;
    cleanup_free char *path = fs_beside_self(argv[0]);
    if (!path)
        return;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (channel == HANDOVER_FD)
        (void)fcntl(channel, F_SETFD, 0);
    else if (dup2(channel, HANDOVER_FD) < 0)
        return;
    (void)execve(path, argv, server_environment());
}

static int send_hello(const struct monitor *m, int channel)
{
    cleanup_buf struct buf settings;
    cleanup_buf struct buf keys;
    int fds[FDPASS_MAX];
    buf_init(&settings, HANDOVER_MAX_TEXT);
    buf_init(&keys, HANDOVER_MAX_TEXT);
    int r = config_write(&m->config, &settings);
    if (r == 0)
        r = keys_write(&m->keys, &keys);
    if (r < 0)
        return r;
    cleanup_close int settings_fd = handover_write_text("settings", &settings);
    cleanup_close int keys_fd = handover_write_text("keys", &keys);
    cleanup_close int table_fd = handover_write_text("table", &m->table);
    if (settings_fd < 0 || keys_fd < 0 || table_fd < 0)
        return -ENOMEM;
    fds[HELLO_SETTINGS] = settings_fd;
    fds[HELLO_KEYS] = keys_fd;
    fds[HELLO_TABLE] = table_fd;
    fds[HELLO_CONTROL] = engine_control_fd(m->engine);
    for (unsigned i = 0; i < m->listen_count; i++)
        fds[HELLO_LISTEN + i] = m->listen_fds[i];
    return handover_send(channel, HANDOVER_HELLO, fds, HELLO_LISTEN + m->listen_count);
}

static int start_server(struct supervisor *s)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    pid_t pid = fork();
    if (pid == 0) {
        int r = memory_group_join(&s->monitor->memory_group);
        if (r < 0)
            log_event(LOG_WARN, "the server cannot enter its control group", "reason",
                strerror(-r), (char *)NULL);
        exec_server(theirs);
        log_event(
            LOG_ERROR, "cannot execute hermes-server", "reason", strerror(errno), (char *)NULL);
        _exit(125);
    }
    if (pid < 0)
        return -errno;
    s->server = pid;
    s->is_ready = false;
    s->channel = take_fd(&ours);
    backoff_began(&s->server_backoff);
    int r = send_hello(s->monitor, s->channel);
    if (r < 0)
        close_fd(&s->channel); /* the server then reads end of file and exits */
    return r;
}

static void stop(struct supervisor *s)
{
    if (s->is_stopping)
        return;
    s->is_stopping = true;
    notify_send("STOPPING=1");
    listen_close(s->monitor);
    s->kill_ms = clock_ms() + s->monitor->config.grace_s * 1000 + STOP_EXTRA_MS;
    if (s->server > 0)
        (void)kill(s->server, SIGTERM);
}

/* Ends every box of a server that has ended. The server cannot be relied on for that: it may
 * have put its sockets where they stay open. The next spawner starts at once. */
static void end_boxes(struct supervisor *s)
{
    engine_close(s->monitor->engine);
    s->monitor->engine = NULL;
    s->spawner_backoff.due_ms = 0;
}

static void on_server_end(struct supervisor *s, int status)
{
    char text[32];
    (void)snprintf(text, sizeof(text), WIFSIGNALED(status) ? "signal %d" : "exit %d",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    close_fd(&s->channel);
    s->server = -1;
    if (s->is_stopping)
        return;
    if (!s->was_ready) { /* the server has logged why; a restart would not help */
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 125;
        s->is_stopping = true;
        return;
    }
    log_event(LOG_ERROR, "the server died", "how", text, (char *)NULL);
    backoff_died(&s->server_backoff);
    if (s->monitor->engine)
        end_boxes(s);
}

static void on_spawner_end(struct supervisor *s)
{
    engine_leave(s->monitor->engine);
    s->monitor->engine = NULL;
    if (s->is_stopping)
        return;
    log_event(LOG_ERROR, "the spawner died", (char *)NULL);
    backoff_died(&s->spawner_backoff);
}

static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == s->server)
            on_server_end(s, status);
        else if (s->monitor->engine && pid == engine_spawner_pid(s->monitor->engine))
            on_spawner_end(s);
    }
}

static void on_signal(struct supervisor *s)
{
    struct signalfd_siginfo info;
    if (read(s->signal_fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGCHLD)
        reap(s);
    else
        stop(s);
}

static void on_channel(struct supervisor *s)
{
    enum handover_kind kind;
    int fds[FDPASS_MAX];
    unsigned count = 0;
    int r = handover_receive(s->channel, &kind, fds, &count);
    for (unsigned i = 0; r > 0 && i < count; i++)
        (void)close(fds[i]); /* a server never sends descriptors */
    if (r <= 0) {
        close_fd(&s->channel); /* SIGCHLD follows */
    } else if (kind == HANDOVER_READY && !s->is_ready) {
        s->is_ready = true;
        notify_send("READY=1");
        log_event(LOG_INFO, s->was_ready ? "the server is back" : "ready", (char *)NULL);
        if (!s->was_ready)
            greet(s->monitor);
        s->was_ready = true;
    }
}

/* Starts what is due. A server whose table is outdated is stopped, and then restarted with the
 * new one. */
static void restart(struct supervisor *s)
{
    uint64_t now = clock_ms();
    struct monitor *m = s->monitor;
    bool changed = false;
    if (s->is_stopping)
        return;
    if (!m->engine && now >= s->spawner_backoff.due_ms && start_spawner(s, &changed) == 0 &&
        s->server > 0) {
        int control = engine_control_fd(m->engine);
        if (changed || handover_send(s->channel, HANDOVER_SPAWNER, &control, 1) < 0)
            (void)kill(s->server, SIGTERM);
    }
    if (m->engine && s->server <= 0 && now >= s->server_backoff.due_ms) {
        int r = start_server(s);
        if (r < 0) {
            log_event(
                LOG_ERROR, "cannot start the server", "reason", strerror(-r), (char *)NULL);
            backoff_died(&s->server_backoff);
        }
    }
}

static int next_timeout(const struct supervisor *s)
{
    uint64_t now = clock_ms();
    uint64_t due = UINT64_MAX;
    if (s->is_stopping)
        due = s->kill_ms;
    else if (!s->monitor->engine)
        due = s->spawner_backoff.due_ms;
    else if (s->server <= 0)
        due = s->server_backoff.due_ms;
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 0 : due - now > 60000 ? 60000 : (int)(due - now);
}

static int block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP); /* the terminal was closed */
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int supervise(struct monitor *m)
{
    struct supervisor s = {
        .monitor = m, .signal_fd = block_signals(), .channel = -1, .server = -1};
    bool changed;
    if (start_spawner(&s, &changed) < 0)
        return 125;
    memory_group_open(&m->memory_group, m->config.server_memory_mb);
    while (!s.is_stopping || s.server > 0) {
        restart(&s);
        struct pollfd fds[] = {{s.signal_fd, POLLIN, 0}, {s.channel, POLLIN, 0}};
        (void)poll(fds, 2, next_timeout(&s));
        if (fds[1].revents)
            on_channel(&s);
        if (fds[0].revents)
            on_signal(&s);
        if (s.is_stopping && s.server > 0 && clock_ms() >= s.kill_ms) {
            (void)kill(s.server, SIGKILL);
            /* The process may be stuck in Linux for a while. */
            s.kill_ms = clock_ms() + KILL_AGAIN_MS;
        }
    }
    engine_close(m->engine);
    m->engine = NULL;
    memory_group_close(&m->memory_group);
    close_fd(&s.channel);
    close_fd(&s.signal_fd);
    return s.status;
}

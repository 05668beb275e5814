/* SPDX-License-Identifier: Apache-2.0 */

/* Starting the programs, and starting them again. A new spawner comes with a hermes-prepare
 * that fills and seals its table. The server learns the spawner's control socket only after
 * hermes-prepare has reported the seal. If the table differs from the one that the server has,
 * the server is restarted. A new server gets a new spawner: no box of the old server's goes on.
 * A new spawner gets a new hermes-egress; a hermes-egress that dies is replaced beside the same
 * spawner. One poll() covers signals, the two sockets and the next restart. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/process.h"
#include "proto/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* A program that dies is restarted after BACKOFF_MIN_MS. The wait doubles with each death
     * up to BACKOFF_MAX_MS, and starts over after STABLE_MS without one. */
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 10000,
    STABLE_MS = 30000,
    STOP_EXTRA_MS = 10000,   /* beyond the grace period, before SIGKILL */
    SPAWNER_STOP_MS = 10000, /* for the spawner to end its boxes, before SIGKILL */
    KILL_AGAIN_MS = 1000,
    EXIT_FAILED = 125,
};

/* When a program that died may be restarted. */
struct backoff {
    uint64_t started_ms;
    uint64_t wait_ms;
    uint64_t due_ms; /* 0: it is running */
};

/* The spawner, and the hermes-prepare that fills its table. */
struct spawner {
    pid_t pid;                     /* -1: there is none */
    int control;                   /* its control socket */
    bool is_sealed;                /* the control socket may go to a server */
    pid_t preparing;               /* hermes-prepare; -1: there is none */
    int channel;                   /* to hermes-prepare */
    int locks[HANDOVER_MAX_LOCKS]; /* on root trees and seeds, as long as the spawner lives */
    unsigned lock_count;
    struct backoff backoff;
    struct egress egress;
    struct backoff egress_backoff;
    struct inject inject;
    struct backoff inject_backoff;
};

struct supervisor {
    struct monitor *monitor;
    int signal_fd;
    struct spawner spawner;
    int sealed[SEALED_COUNT]; /* the runtimes and the table that the server has; -1: none yet */
    int channel;              /* to the server; -1 without one */
    pid_t server;
    bool is_ready;  /* this server has sent HANDOVER_READY */
    bool was_ready; /* an earlier server did */
    bool is_stopping;
    uint64_t kill_ms; /* when a server that does not stop gets SIGKILL */
    int status;       /* exit status of the monitor */
    struct backoff server_backoff;
    struct outside_program outside[OUTSIDE_COUNT];
    struct backoff outside_backoff[OUTSIDE_COUNT];
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

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close_fd(&fds[i]);
}

/* Forgets a hermes-prepare. Kills one that still works: the spawner that it works for is
 * gone. */
static void end_preparing(struct spawner *p)
{
    if (p->preparing > 0) {
        (void)kill(p->preparing, SIGKILL);
        process_await(p->preparing, SPAWNER_STOP_MS);
    }
    p->preparing = -1;
    close_fd(&p->channel);
}

/* Forgets a spawner that has ended. */
static void leave_spawner(struct spawner *p)
{
    end_preparing(p);
    egress_stop(&p->egress);
    inject_stop(&p->inject);
    p->egress_backoff = p->inject_backoff = (struct backoff){0};
    close_fd(&p->control);
    close_all(p->locks, p->lock_count);
    p->lock_count = 0;
    p->pid = -1;
    p->is_sealed = false;
}

/* Ends the spawner and all its boxes. The server may have a copy of our end of the socket,
 * hence shutdown(). */
static void stop_spawner(struct spawner *p)
{
    if (p->pid > 0) {
        (void)shutdown(p->control, SHUT_RDWR);
        process_await(p->pid, SPAWNER_STOP_MS);
    }
    leave_spawner(p);
}

/* Sends hermes-prepare its input. */
static int send_spawned(struct supervisor *s)
{
    cleanup_close int egress = egress_link(&s->spawner.egress);
    if (egress < 0)
        return egress;
    int fds[SPAWNED_WITH_OLD] = {[SPAWNED_SETTINGS] = s->monitor->fds[PLAN_SETTINGS],
        [SPAWNED_CONTROL] = s->spawner.control,
        [SPAWNED_EGRESS] = egress,
        [OLD_RUNTIMES] = s->sealed[SEALED_RUNTIMES],
        [OLD_TABLE] = s->sealed[SEALED_TABLE]};
    return handover_send(s->spawner.channel, HANDOVER_SPAWNED, fds,
        s->sealed[SEALED_TABLE] < 0 ? SPAWNED_COUNT : SPAWNED_WITH_OLD);
}

static void start_spawner(struct supervisor *s)
{
    static const struct child spawn = {.program = "hermes-spawn", .no_environment = true};
    static const struct child prepare = {.program = "hermes-prepare", .argument = "table"};
    struct spawner *p = &s->spawner;
    int r = p->pid = child_start(&spawn, &p->control);
    if (r > 0)
        r = p->preparing = child_start(&prepare, &p->channel);
    if (r > 0)
        r = send_spawned(s);
    if (r < 0) {
        log_event(LOG_ERROR, "cannot start the spawner", "reason", strerror(-r), (char *)NULL);
        stop_spawner(p);
        backoff_died(&p->backoff);
        return;
    }
    backoff_began(&p->backoff);
}

/* Without hermes-egress boxes reach no network; everything else works. */
static void start_egress(struct supervisor *s)
{
    struct spawner *p = &s->spawner;
    cleanup_close int link = s->monitor->plan.has_secrets ? inject_link(&p->inject) : -1;
    int r = egress_start(&p->egress, s->monitor, link);
    if (r == 0) {
        backoff_began(&p->egress_backoff);
        return;
    }
    log_event(LOG_ERROR, "cannot start hermes-egress", "reason", strerror(-r), (char *)NULL);
    backoff_died(&p->egress_backoff);
}

/* Without hermes-inject connections that need a secret are refused; everything else works. */
static void start_inject(struct supervisor *s)
{
    struct spawner *p = &s->spawner;
    int r = inject_start(&p->inject, s->monitor);
    if (r == 0) {
        backoff_began(&p->inject_backoff);
        return;
    }
    log_event(LOG_ERROR, "cannot start hermes-inject", "reason", strerror(-r), (char *)NULL);
    backoff_died(&p->inject_backoff);
}

/* Without hermes-reach there is no reviewer and no webhook, without hermes-places no backend;
 * everything else works. */
static void start_outside(struct supervisor *s, enum outside which)
{
    int r = outside_start(&s->outside[which], s->monitor, which);
    if (r == 0) {
        backoff_began(&s->outside_backoff[which]);
        return;
    }
    log_event(LOG_ERROR, "cannot start a program", "program", outside_name(which), "reason",
        strerror(-r), (char *)NULL);
    backoff_died(&s->outside_backoff[which]);
}

/* hermes-prepare has ended without a sealed table. At the first start a second attempt would
 * not help. */
static void on_prepare_failed(struct supervisor *s)
{
    log_event(LOG_ERROR,
        "hermes-prepare could not set up the languages; the lines above say why: correct that, "
        "or run `hermes doctor`",
        (char *)NULL);
    stop_spawner(&s->spawner);
    backoff_died(&s->spawner.backoff);
    if (s->sealed[SEALED_TABLE] < 0) {
        s->status = EXIT_FAILED;
        s->is_stopping = true;
    }
}

static void on_sealed(struct supervisor *s, const int *fds, bool is_new)
{
    struct monitor *m = s->monitor;
    bool is_first = s->sealed[SEALED_TABLE] < 0;
    s->spawner.is_sealed = true;
    if (is_new) {
        close_all(s->sealed, SEALED_COUNT);
        memcpy(s->sealed, fds, sizeof(s->sealed));
    }
    if (is_first)
        groups_open(m);
    if (s->server > 0 &&
        (is_new || handover_send(s->channel, HANDOVER_SPAWNER, &s->spawner.control, 1) < 0))
        (void)kill(s->server, SIGTERM);
}

static void on_prepare(struct supervisor *s)
{
    struct spawner *p = &s->spawner;
    enum handover_kind kind;
    int fds[FDPASS_MAX];
    unsigned count = 0;
    int r = handover_receive(p->channel, &kind, fds, &count);
    bool is_first = s->sealed[SEALED_TABLE] < 0;
    if (r <= 0) {
        close_fd(&p->channel); /* SIGCHLD follows */
        if (!p->is_sealed)
            on_prepare_failed(s);
    } else if (kind == HANDOVER_LOCKS && count <= HANDOVER_MAX_LOCKS - p->lock_count) {
        memcpy(p->locks + p->lock_count, fds, count * sizeof(*fds));
        p->lock_count += count;
    } else if (kind == HANDOVER_SEALED && !p->is_sealed &&
               (count == SEALED_COUNT || (count == 0 && !is_first))) {
        on_sealed(s, fds, count > 0);
    } else {
        close_all(fds, count);
    }
}

static int send_hello(const struct supervisor *s)
{
    const struct monitor *m = s->monitor;
    unsigned listen_count = m->fd_count - PLAN_LISTEN;
    int fds[FDPASS_MAX] = {[HELLO_SETTINGS] = m->fds[PLAN_SETTINGS],
        [HELLO_KEYS] = m->fds[PLAN_KEYS],
        [HELLO_RUNTIMES] = s->sealed[SEALED_RUNTIMES],
        [HELLO_TABLE] = s->sealed[SEALED_TABLE],
        [HELLO_CONTROL] = s->spawner.control,
        [HELLO_TRUST] = m->fds[PLAN_TRUST],
        [HELLO_REACH] = s->outside[OUTSIDE_REACH].calls[0],
        [HELLO_PLACES] = s->outside[OUTSIDE_PLACES].calls[0]};
    if (listen_count > HANDOVER_MAX_LISTEN)
        return -E2BIG;
    memcpy(fds + HELLO_LISTEN, m->fds + PLAN_LISTEN, listen_count * sizeof(*fds));
    return handover_send(s->channel, HANDOVER_HELLO, fds, HELLO_LISTEN + listen_count);
}

static void start_server(struct supervisor *s)
{
    const struct child server = {.program = "hermes-server",
        .group = &s->monitor->server_group,
        .uid = s->monitor->plan.uid,
        .gid = s->monitor->plan.gid};
    int r = s->server = child_start(&server, &s->channel);
    s->is_ready = false;
    if (r > 0) {
        backoff_began(&s->server_backoff);
        r = send_hello(s);
    }
    if (r >= 0)
        return;
    log_event(LOG_ERROR, "cannot start the server", "reason", strerror(-r), (char *)NULL);
    close_fd(&s->channel); /* the server then reads end of file and exits */
    if (s->server < 0)
        backoff_died(&s->server_backoff);
}

static void stop(struct supervisor *s)
{
    if (s->is_stopping)
        return;
    s->is_stopping = true;
    notify_send("STOPPING=1");
    stop_listening(s->monitor);
    s->kill_ms = clock_ms() + s->monitor->plan.grace_ms + STOP_EXTRA_MS;
    if (s->server > 0)
        (void)kill(s->server, SIGTERM);
}

static void log_death(const char *what, int status)
{
    char text[32];
    (void)snprintf(text, sizeof(text), WIFSIGNALED(status) ? "signal %d" : "exit %d",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    log_event(LOG_ERROR, what, "how", text, (char *)NULL);
}

static void on_server_end(struct supervisor *s, int status)
{
    close_fd(&s->channel);
    s->server = -1;
    if (s->is_stopping)
        return;
    if (!s->was_ready) { /* the server has logged why; a restart would not help */
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
        s->is_stopping = true;
        return;
    }
    log_death("the server died", status);
    backoff_died(&s->server_backoff);
    /* The server cannot be relied on to end its boxes: it may have put its sockets where they
     * stay open. The next spawner starts at once. */
    stop_spawner(&s->spawner);
    s->spawner.backoff.due_ms = 0;
}

static void on_spawner_end(struct supervisor *s)
{
    if (s->is_stopping || !s->spawner.is_sealed) {
        s->spawner.pid = -1; /* without a seal hermes-prepare fails too, and says why */
        return;
    }
    leave_spawner(&s->spawner);
    log_event(LOG_ERROR, "the spawner died", (char *)NULL);
    backoff_died(&s->spawner.backoff);
}

static void on_egress_end(struct supervisor *s, int status)
{
    s->spawner.egress.pid = -1;
    if (s->is_stopping || s->spawner.pid <= 0)
        return;
    if (status == 0) /* the spawner closed the socket between them, or ended */
        log_event(LOG_WARN, "hermes-egress ended", (char *)NULL);
    else
        log_death("hermes-egress died", status);
    backoff_died(&s->spawner.egress_backoff);
}

/* It ends by itself after hermes-egress has. */
static void on_inject_end(struct supervisor *s, int status)
{
    s->spawner.inject.pid = -1;
    if (s->is_stopping || s->spawner.pid <= 0)
        return;
    if (status != 0)
        log_death("hermes-inject died", status);
    backoff_died(&s->spawner.inject_backoff);
}

static void on_outside_end(struct supervisor *s, enum outside which, int status)
{
    static const char *const died[] = {
        [OUTSIDE_REACH] = "hermes-reach died", [OUTSIDE_PLACES] = "hermes-places died"};
    s->outside[which].pid = -1;
    if (s->is_stopping)
        return;
    log_death(died[which], status);
    backoff_died(&s->outside_backoff[which]);
}

static void on_end(struct supervisor *s, pid_t pid, int status)
{
    if (pid == s->server)
        on_server_end(s, status);
    else if (pid == s->spawner.pid)
        on_spawner_end(s);
    else if (pid == s->spawner.preparing)
        s->spawner.preparing = -1;
    else if (pid == s->spawner.egress.pid)
        on_egress_end(s, status);
    else if (pid == s->spawner.inject.pid)
        on_inject_end(s, status);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        if (pid == s->outside[i].pid)
            on_outside_end(s, i, status);
}

static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        on_end(s, pid, status);
}

static void on_signal(struct supervisor *s)
{
    struct signalfd_siginfo info;
    if (read(s->signal_fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGCHLD)
        reap(s);
    else if (info.ssi_signo == SIGUSR1 && s->server > 0 && !s->is_stopping)
        (void)kill(
            s->server, SIGTERM); /* a new spawner, with a new table, comes with the next */
    else if (info.ssi_signo == SIGUSR1)
        return;
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
        s->was_ready = true;
    }
}

static bool lacks_egress(const struct supervisor *s)
{
    return s->monitor->plan.has_egress && s->spawner.is_sealed && s->spawner.egress.pid <= 0;
}

static bool lacks_inject(const struct supervisor *s)
{
    return s->monitor->plan.has_secrets && s->spawner.egress.pid > 0 &&
           s->spawner.inject.pid <= 0;
}

static bool lacks_outside(const struct supervisor *s, enum outside which)
{
    return s->monitor->plan.outside[which].is_wanted && s->sealed[SEALED_TABLE] >= 0 &&
           s->outside[which].pid <= 0;
}

/* Starts the programs whose restart is due. */
static void restart(struct supervisor *s)
{
    uint64_t now = clock_ms();
    if (s->is_stopping)
        return;
    if (s->spawner.pid <= 0 && s->spawner.channel < 0 && now >= s->spawner.backoff.due_ms)
        start_spawner(s);
    if (lacks_egress(s) && now >= s->spawner.egress_backoff.due_ms)
        start_egress(s);
    if (lacks_inject(s) && now >= s->spawner.inject_backoff.due_ms)
        start_inject(s);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        if (lacks_outside(s, i) && now >= s->outside_backoff[i].due_ms)
            start_outside(s, i);
    if (s->spawner.is_sealed && s->server <= 0 && now >= s->server_backoff.due_ms)
        start_server(s);
}

static int next_timeout(const struct supervisor *s)
{
    uint64_t now = clock_ms();
    uint64_t due = UINT64_MAX;
    if (s->is_stopping)
        due = s->kill_ms;
    else if (s->spawner.pid <= 0 && s->spawner.channel < 0)
        due = s->spawner.backoff.due_ms;
    else if (s->spawner.is_sealed && s->server <= 0)
        due = s->server_backoff.due_ms;
    if (!s->is_stopping && lacks_egress(s) && s->spawner.egress_backoff.due_ms < due)
        due = s->spawner.egress_backoff.due_ms;
    if (!s->is_stopping && lacks_inject(s) && s->spawner.inject_backoff.due_ms < due)
        due = s->spawner.inject_backoff.due_ms;
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        if (!s->is_stopping && lacks_outside(s, i) && s->outside_backoff[i].due_ms < due)
            due = s->outside_backoff[i].due_ms;
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
    (void)sigaddset(&set, SIGHUP);  /* the terminal was closed */
    (void)sigaddset(&set, SIGUSR1); /* `hermes image build --operator` asks for a restart */
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int supervise(struct monitor *m)
{
    struct supervisor s = {
        .monitor = m,
        .signal_fd = block_signals(),
        .spawner = {.pid = -1,
            .control = -1,
            .preparing = -1,
            .channel = -1,
            .egress = {.pid = -1, .link = -1},
            .inject = {.pid = -1, .link = -1}},
        .sealed = {-1, -1},
        .channel = -1,
        .server = -1,
    };
    int r = 0;
    for (int i = 0; i < OUTSIDE_COUNT; i++) {
        s.outside[i] = (struct outside_program){.pid = -1, .socket = -1, .calls = {-1, -1}};
        if (r == 0)
            r = outside_open(&s.outside[i]);
    }
    if (r < 0) {
        log_event(LOG_ERROR, "cannot make the sockets of the programs that call outside",
            "reason", strerror(-r), (char *)NULL);
        s.status = EXIT_FAILED;
        s.is_stopping = true;
    }
    while (!s.is_stopping || s.server > 0) {
        restart(&s);
        struct pollfd fds[] = {
            {s.signal_fd, POLLIN, 0}, {s.channel, POLLIN, 0}, {s.spawner.channel, POLLIN, 0}};
        (void)poll(fds, sizeof(fds) / sizeof(fds[0]), next_timeout(&s));
        if (fds[1].revents)
            on_channel(&s);
        if (fds[2].revents)
            on_prepare(&s);
        if (fds[0].revents)
            on_signal(&s);
        if (s.is_stopping && s.server > 0 && clock_ms() >= s.kill_ms) {
            (void)kill(s.server, SIGKILL);
            /* The process may be stuck in Linux for a while. */
            s.kill_ms = clock_ms() + KILL_AGAIN_MS;
        }
    }
    stop_spawner(&s.spawner);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        outside_stop(&s.outside[i]);
    groups_close(m);
    close_all(s.sealed, SEALED_COUNT);
    close_fd(&s.channel);
    close_fd(&s.signal_fd);
    return s.status;
}

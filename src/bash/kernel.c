/* SPDX-License-Identifier: Apache-2.0 */

/* See kernel.h. It holds the channel and runs no user code: a bash below it does, which may end
 * at any time and is then replaced. One thread, one poll(). */

#include "bash/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "bash/bash.h"
#include "bash/frame.h"
#include "bash/jobs.h"
#include "bash/proctree.h"
#include "bash/variables.h"

enum {
    CHANNEL_FD = 3,
    EXIT_PROTOCOL = 70,      /* the server sent an invalid frame */
    EXIT_BROKEN = 72,        /* no bash can be started */
    KILL_AFTER_MS = 1000,    /* from SIGINT until the processes of the code are killed */
    REPLACE_AFTER_MS = 400,  /* from then until the shell itself is killed */
    ROUND_MAX_MS = 2500,     /* for a round without code; `set -n` makes a shell deaf */
    START_MAX_MS = 3000,     /* for a new shell to restore its state; after that, a shell
                              * without state is started */
    KILL_JOB_GRACE_MS = 300, /* from SIGTERM to SIGKILL */
    END_MS = 1000,           /* for the end of all processes below */
    FORK_ROUNDS = 100,       /* attempts to free processes before fork() is given up */
    STARTS_MAX = 4,          /* shells that may end before one is idle */
};

/* A shell reports the start of a round when it has started, after it has restored a state, and
 * after each exec. SETTLING: an interrupted exec is over, but its SIGINT may still be on its
 * way. The shell gets an empty round, and the next exec waits until that is reported. ENDING: a
 * shell for one exec ends, with its EXIT trap. */
enum phase { STARTING, RESTORING, IDLE, RUNNING, SETTLING, ENDING };

struct kernel {
    struct bash bash;
    enum phase phase;
    bool will_restore;
    bool is_fresh;   /* each exec has a new shell, in the directory of the one before */
    unsigned starts; /* since a shell was last idle */
    int signals;
    struct buf in;
    bool told_ready, has_stdin;
    bool wants_variables; /* the server waits for the list */
    bool trace, verbose;  /* set -x and set -v; off between execs */
    /* The exec that runs, or that ran in a shell which is being replaced. */
    bool in_exec;
    unsigned count;
    int status;
    const char *state; /* value of `state` in the frame `done` */
    uint64_t since_ticks;
    bool interrupted;
    uint64_t kill_at_ms, replace_at_ms; /* 0: not set */
    int last_status;
    char cwd[4096];
};

static _Noreturn void end(int status)
{
    tree_kill_all(END_MS);
    exit(status);
}

static void send_frame(const char *kind, const struct buf *payload)
{
    if (frame_send(CHANNEL_FD, kind, payload) < 0)
        end(0);
}

/* Reads the shell's working directory. Keeps the old value when that fails. */
static void look_up_cwd(struct kernel *k)
{
    static const char GONE[] = " (deleted)";
    char path[32], cwd[sizeof(k->cwd)];
    (void)snprintf(path, sizeof(path), "/proc/%d/cwd", (int)k->bash.pid);
    ssize_t n = readlink(path, cwd, sizeof(cwd) - 1);
    if (n <= 0)
        return;
    cwd[n] = '\0';
    if (str_has_suffix(cwd, GONE))
        cwd[(size_t)n - strlen(GONE)] = '\0';
    (void)snprintf(k->cwd, sizeof(k->cwd), "%s", cwd);
}

static void send_ready(struct kernel *k)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, 65536);
    (void)buf_append_str(&text, "{\"cwd\":");
    (void)json_append(&text, k->cwd, strlen(k->cwd));
    (void)buf_append_str(&text, ",\"kernel\":\"bash\"}");
    send_frame("ready", &text);
    k->told_ready = true;
}

/* Discards a SIGINT that is pending when an exec ends or between two execs: it was not meant
 * for the next one. */
static void drop_interrupt(void)
{
    static const struct timespec NOW = {0};
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigtimedwait(&set, NULL, &NOW);
}

static void send_done(struct kernel *k)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, 65536);
    (void)buf_printf(
        &text, "{\"ok\":%s,\"exit_code\":%d,\"cwd\":", k->status ? "false" : "true", k->status);
    (void)json_append(&text, k->cwd, strlen(k->cwd));
    (void)buf_printf(&text, ",\"execution_count\":%u,\"interrupted\":%s,\"state\":\"%s\"}",
        k->count, k->interrupted && k->status ? "true" : "false", k->state);
    if (k->has_stdin)
        (void)bash_set_stdin(&k->bash, NULL, 0);
    k->in_exec = k->interrupted = k->has_stdin = false;
    k->last_status = k->status;
    drop_interrupt();
    send_frame("done", &text);
}

static void become_idle(struct kernel *k)
{
    k->phase = IDLE;
    k->starts = 0;
    k->kill_at_ms = k->replace_at_ms = 0;
    if (!k->told_ready)
        send_ready(k);
    if (k->in_exec)
        send_done(k);
}

static void start_bash(struct kernel *k)
{
    k->will_restore = k->bash.state.len > 0;
    if (++k->starts > STARTS_MAX)
        end(EXIT_BROKEN);
    if (k->is_fresh && chdir(k->cwd) < 0 && !getcwd(k->cwd, sizeof(k->cwd)))
        (void)snprintf(k->cwd, sizeof(k->cwd), "/"); /* its directory was removed */
    int r = bash_start(&k->bash, k->will_restore);
    /* The code has used up all processes. */
    for (int i = 0; r == -EAGAIN && i < FORK_ROUNDS; i++) {
        tree_kill_since(k->since_ticks, 0);
        r = bash_start(&k->bash, k->will_restore);
    }
    if (r < 0)
        end(EXIT_BROKEN);
    if (k->will_restore && bash_send_state(&k->bash) < 0)
        end(EXIT_BROKEN);
    k->phase = STARTING;
    k->kill_at_ms = 0;
    k->replace_at_ms = clock_ms() + START_MAX_MS;
}

static void note_flags(struct kernel *k)
{
    k->trace = strchr(k->bash.flags, 'x') != NULL;
    k->verbose = strchr(k->bash.flags, 'v') != NULL;
}

static void send_variables(struct kernel *k)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, 4 << 20);
    variables_list(&text, k->bash.state.data, k->bash.state.len);
    send_frame("variables", &text);
    k->wants_variables = false;
}

/* A shell reports its state after the exec is done. One more round, without code, comes after
 * that report. */
static void ask_variables(struct kernel *k)
{
    k->wants_variables = true;
    k->phase = SETTLING;
    k->replace_at_ms = clock_ms() + ROUND_MAX_MS;
    if (bash_send(&k->bash, "", "", 0) < 0)
        end(EXIT_BROKEN);
}

static void on_round(struct kernel *k, int status)
{
    if (k->phase == STARTING && k->will_restore) {
        k->phase = RESTORING;
        return;
    }
    if (k->phase == ENDING) { /* the code has changed what `builtin` is */
        (void)kill(k->bash.pid, SIGKILL);
        return;
    }
    if (k->phase == RUNNING) {
        k->status = status & 0xff;
        note_flags(k);
        if (k->interrupted) {
            k->phase = SETTLING;
            if (bash_send(&k->bash, "", "", 0) < 0)
                end(EXIT_BROKEN);
            return;
        }
    }
    if (k->is_fresh && (k->phase == RUNNING || k->phase == SETTLING) && k->in_exec) {
        static const char CODE[] = "builtin exit";
        k->phase = ENDING;
        k->replace_at_ms = clock_ms() + ROUND_MAX_MS;
        if (bash_send(&k->bash, "", CODE, sizeof(CODE) - 1) < 0)
            end(EXIT_BROKEN);
        return;
    }
    if (k->phase != IDLE)
        become_idle(k);
    if (k->wants_variables)
        send_variables(k);
}

static void on_report(struct kernel *k)
{
    int status = 0;
    int rounds = bash_read_report(&k->bash, &status);
    if (rounds > 0)
        look_up_cwd(k);
    for (int i = 0; i < rounds; i++)
        on_round(k, status);
}

static void on_bash_end(struct kernel *k, int how)
{
    bool running = k->phase == RUNNING || k->phase == SETTLING;
    bool failed = k->phase == STARTING || k->phase == RESTORING;
    bool left_state = bash_read_last_words(&k->bash);
    if (running) {
        if (k->phase == RUNNING)
            k->status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        k->state = left_state ? "kept" : k->bash.state.len > 0 ? "restored" : "lost";
        if (left_state)
            note_flags(k);
    }
    if (failed) { /* no shell reaches its first round with this state */
        buf_clear(&k->bash.state);
        k->state = "lost";
    }
    if (k->is_fresh) {
        buf_clear(&k->bash.state);
        k->state = "kept"; /* there is none to lose */
    }
    start_bash(k);
}

/* Restores the options that are off while our own commands run, and $? of the exec before. */
static void make_prefix(const struct kernel *k, const struct frame *f, char *out, size_t size)
{
    out[0] = '\0';
    int n = 0;
    if (k->is_fresh)
        return;
    if (k->last_status && memmem(f->payload, f->len, "$?", 2) && !strchr(k->bash.flags, 'e'))
        n = snprintf(out, size, "(builtin exit %d); ", k->last_status);
    if (k->trace || k->verbose)
        (void)snprintf(out + n, size - (size_t)n, "builtin set -%s%s; ", k->trace ? "x" : "",
            k->verbose ? "v" : "");
}

static void begin_exec(struct kernel *k, const struct frame *f)
{
    k->count++;
    k->in_exec = true;
    k->state = "kept";
    const char *nul = memchr(f->payload, '\0', f->len);
    if (nul) {
        (void)dprintf(2, "hermes: the code has a NUL byte at offset %zu; bash cannot read it\n",
            (size_t)(nul - f->payload));
        k->status = 2;
        become_idle(k);
        return;
    }
    char prefix[128];
    make_prefix(k, f, prefix, sizeof(prefix));
    k->phase = RUNNING;
    k->since_ticks = tree_now_ticks();
    if (bash_send(&k->bash, prefix, f->payload, f->len) < 0)
        end(EXIT_BROKEN);
}

static void send_jobs(struct kernel *k)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, 1 << 20);
    jobs_list(&text, k->bash.pid);
    send_frame("jobs", &text);
}

static void send_settled(void)
{
    cleanup_buf struct buf text = {0};
    buf_init(&text, 8);
    (void)buf_append_str(&text, "null");
    send_frame("settled", &text);
}

static void kill_job(struct kernel *k, const struct frame *f)
{
    char id[16] = "";
    uint32_t pid;
    if (f->len < sizeof(id)) {
        memcpy(id, f->payload, f->len);
        if (str_parse_u32(id, &pid) == 0 && pid > 1)
            (void)jobs_end(k->bash.pid, (pid_t)pid, KILL_JOB_GRACE_MS);
    }
    send_jobs(k);
}

static void on_frame(struct kernel *k, const struct frame *f)
{
    bool idle = k->phase == IDLE;
    if (str_eq(f->kind, "exec") && idle) {
        begin_exec(k, f);
    } else if (str_eq(f->kind, "stdin") && idle) {
        if (bash_set_stdin(&k->bash, f->payload, f->len) < 0)
            end(EXIT_BROKEN);
        k->has_stdin = true;
    } else if (str_eq(f->kind, "jobs")) {
        send_jobs(k);
    } else if (str_eq(f->kind, "kill_job")) {
        kill_job(k, f);
    } else if (str_eq(f->kind, "variables") && idle) {
        ask_variables(k);
    } else if (str_eq(f->kind, "settle") && idle) {
        drop_interrupt();
        send_settled();
    } else if (!str_eq(f->kind, "tools") && !str_eq(f->kind, "tool_result")) {
        end(EXIT_PROTOCOL);
    }
}

static void on_channel(struct kernel *k)
{
    ssize_t n = buf_read_fd(&k->in, CHANNEL_FD, 1 << 18);
    if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR))
        end(0);
}

/* Frames wait while a shell is being replaced. */
static void take_frames(struct kernel *k)
{
    struct frame f;
    int r;
    while ((k->phase == IDLE || k->phase == RUNNING) && (r = frame_parse(&k->in, &f)) != 0) {
        if (r < 0)
            end(EXIT_PROTOCOL);
        on_frame(k, &f);
        frame_drop(&k->in, &f);
    }
}

/* Sends SIGINT to the shell's process group and to processes of this exec in other groups (set
 * -m, setsid). The shell itself gets it only once: a second SIGINT would end it while it
 * reports its state. */
static void interrupt(struct kernel *k)
{
    if (k->phase != RUNNING)
        return;
    cleanup_tree struct tree t = {0};
    (void)tree_read(&t);
    if (!k->interrupted)
        (void)kill(-k->bash.pid, SIGINT);
    for (size_t i = 0; i < t.count; i++) {
        bool told =
            t.all[i].group == k->bash.pid && (!k->interrupted || t.all[i].pid == k->bash.pid);
        if (!told && t.all[i].start_ticks >= k->since_ticks)
            (void)kill(t.all[i].pid, SIGINT);
    }
    k->interrupted = true;
    if (!k->kill_at_ms && !k->replace_at_ms)
        k->kill_at_ms = clock_ms() + KILL_AFTER_MS;
}

static void on_signals(struct kernel *k)
{
    struct signalfd_siginfo info;
    bool interrupted = false;
    while (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        interrupted |= info.ssi_signo == SIGINT;
    int how, bash_how = 0;
    pid_t pid;
    bool ended = false;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
        if (pid == k->bash.pid) {
            ended = true;
            bash_how = how;
        }
    }
    if (ended) {
        on_report(k); /* handle its last reports first */
        on_bash_end(k, bash_how);
    } else if (interrupted) {
        take_frames(k); /* an exec that has already come is the one to interrupt */
        interrupt(k);
    }
}

static int check_deadlines(struct kernel *k)
{
    uint64_t now = clock_ms();
    if (k->kill_at_ms && now >= k->kill_at_ms) {
        tree_kill_since(k->since_ticks, k->bash.pid);
        k->kill_at_ms = 0;
        k->replace_at_ms = now + REPLACE_AFTER_MS;
    } else if (k->replace_at_ms && now >= k->replace_at_ms) {
        (void)kill(k->bash.pid, SIGKILL);
        k->replace_at_ms = 0;
    }
    uint64_t next = k->kill_at_ms ? k->kill_at_ms : k->replace_at_ms;
    return next == 0 ? -1 : next <= now ? 0 : (int)(next - now);
}

static int set_up(struct kernel *k, const char *program)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    if ((k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return -errno;
    if (fcntl(CHANNEL_FD, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    /* gVisor has none: there a process that leaves its parent is not found any more. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!getcwd(k->cwd, sizeof(k->cwd)))
        (void)snprintf(k->cwd, sizeof(k->cwd), "/");
    buf_init(&k->in, (size_t)2 * FRAME_MAX + 4096);
    return bash_init(&k->bash, program);
}

void kernel_run(const char *program, bool is_fresh)
{
    static struct kernel k;
    k.is_fresh = is_fresh;
    int r = set_up(&k, program);
    if (r < 0) {
        (void)dprintf(2, "hermes-shell: cannot start: %s\n", strerror(-r));
        exit(EXIT_BROKEN);
    }
    start_bash(&k);
    for (;;) {
        bool listens = k.phase == IDLE || k.phase == RUNNING;
        struct pollfd fds[] = {
            {.fd = k.signals, .events = POLLIN}, {.fd = k.bash.report_read, .events = POLLIN},
            {.fd = k.bash.exit_read, .events = POLLIN},
            {.fd = CHANNEL_FD, .events = listens ? POLLIN : 0}, /* POLLHUP is always reported */
        };
        if (poll(fds, 4, check_deadlines(&k)) < 0 && errno != EINTR)
            end(EXIT_BROKEN);
        if (fds[1].revents)
            on_report(&k);
        if (fds[2].revents)
            (void)bash_read_last_words(&k.bash);
        if (fds[3].revents && !listens)
            end(0);
        if (fds[3].revents)
            on_channel(&k);
        if (fds[0].revents)
            on_signals(&k);
        take_frames(&k);
    }
}

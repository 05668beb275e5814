/* SPDX-License-Identifier: Apache-2.0 */

/* See stage.h. One poll() covers the box's socket, its streams, its files, the cancellation and
 * the next deadline. The spawner reports when the program may run and how the box ended; this
 * file decides when to kill and what the verdict is.
 *
 * CPU time is checked at the earliest time at which it can have run out: the time left, divided
 * by the cores that the box may use. */

#include "run/stage.h"

#include "run/warmth.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "network/hub.h"
#include "network/policy.h"
#include "proto/box.h"
#include "proto/zygote.h"
#include "run/pump.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHUNK = 16384,           /* bytes of one read */
    CPU_STEP_NS = 2000000,   /* least time between two checks of the CPU time */
    WAITING_NS = 1000000000, /* between two looks at a program that waits for an approval */
    COLLECT_MS = 10000,      /* most time for collecting files, after the program ended */
    START_MS = 30000,        /* most time for the set-up of a box */
    KILL_MS = 10000,         /* most time for a killed box to be gone */
};

enum kill_reason { KILL_NONE, KILL_WALL, KILL_CPU, KILL_OUTPUT, KILL_CANCEL, KILL_LATE };

struct stage {
    const struct stage_spec *spec;
    struct stage_result *result;
    struct collect_reader *collected;
    int socket;
    int out_fd, err_fd;
    struct pump_in in;
    struct pump_out sinks[2]; /* by enum run_stream */
    int collect_fd;
    int channel; /* of a copy of a template box; else -1 */
    void *held;  /* that template */
    const char *cold_reason;
    struct network_link *link; /* NULL: no network */
    struct network_tally *tally;
    bool started, exited;
    bool collect_broken;
    enum kill_reason kill;
    uint64_t wall_deadline_ns; /* without the time that it waits for approvals */
    uint64_t waited_ns;        /* for them */
    bool is_waiting;
    uint64_t cpu_check_ns;
    bool cpu_asked;
    uint64_t other_deadline_ns; /* for set-up, collection and the end of a killed box */
    uint64_t stdout_bytes;
    struct spawn_event end;
    bool ended;
    char *chunk; /* CHUNK bytes to read into */
};

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
    job_weigh(&spec->job, &bytes, &inodes);
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

static void on_event(struct stage *st, const struct spawn_event *event);

/* Takes a copy of a template box, which waits for its package, and gives it that. False: the
 * run starts cold, and st->cold_reason says why. fds: package, stdout, stderr, and stdin or -1.
 */
static bool take_copy(struct stage *st, const int fds[4])
{
    const struct stage_spec *spec = st->spec;
    struct template_use use = spec->template_use;
    struct template_copy copy;
    struct spawn_limits limits;
    if (!spec->templates || st->cold_reason)
        return false;
    use.out_fd = fds[1];
    use.err_fd = fds[2];
    use.in_fd = fds[3];
    st->cold_reason = spec->templates->copy(spec->templates->context, &use, &copy);
    if (st->cold_reason)
        return false;
    close_fd(&st->socket);
    st->socket = copy.socket;
    st->channel = copy.channel;
    st->held = copy.held;
    limits_to_spawn(&spec->limits, &limits);
    const struct zygote_hand hand = {.flags = fds[3] < 0 ? 0 : BOX_STDIN,
        .cpu_s = limits.cpu_s,
        .file_bytes = limits.file_bytes,
        .stack_bytes = limits.stack_bytes};
    on_event(st, &copy.started);
    /* A copy that cannot be given its package has ended already; its event says so. */
    (void)fdpass_send_now(st->channel, &hand, sizeof(hand), fds, fds[3] < 0 ? 3 : 4);
    return true;
}

/* Reads what the copy of a template reports before its program begins: a failure of Hermes, or
 * nothing. */
static void hear_copy(struct stage *st)
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

static int request_box(struct stage *st, struct spawner_client *spawner, struct err *err)
{
    const struct stage_spec *spec = st->spec;
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
    int pair[2];
    cleanup_close int job = -1;
    cleanup_close int box_out = spec->box_stdout_fd;
    cleanup_close int box_err = -1;
    cleanup_close int box_in = spec->box_stdin_fd;
    cleanup_close int box_collect = -1;
    cleanup_close int box_network = -1;
    int r = check_room(spec, err);
    if (r == 0 && spec->job_fd < 0)
        r = job_write(&spec->job, &job, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(
            err, err_code_of(errno), errno, "cannot make a socket: %s", strerror(errno));
    st->socket = pair[0];
    cleanup_close int box_socket = pair[1];
    if ((box_out < 0 && (r = open_pipe(true, &st->out_fd, &box_out)) < 0) ||
        (r = open_pipe(true, &st->err_fd, &box_err)) < 0 ||
        (st->collected && (r = open_pipe(true, &st->collect_fd, &box_collect)) < 0))
        return err_set(err, err_code_of(-r), -r, "cannot make a pipe: %s", strerror(-r));
    if (box_in < 0 && (r = open_stdin(st, &box_in, err)) < 0)
        return r;
    if (take_copy(st, (int[]){job < 0 ? spec->job_fd : job, box_out, box_err, box_in}))
        return 0;
    if ((r = open_network(st, &box_network, err)) < 0)
        return r;
    int fds[7] = {box_socket, job < 0 ? spec->job_fd : job, box_out, box_err};
    unsigned count = 4;
    if (box_in >= 0) {
        box.flags |= BOX_STDIN;
        fds[count++] = box_in;
    }
    if (box_collect >= 0) {
        box.flags |= BOX_COLLECT;
        fds[count++] = box_collect;
    }
    if (box_network >= 0) { /* always the last */
        box.flags |= BOX_NETWORK;
        fds[count++] = box_network;
    }
    return spawner_box(spawner, &box, fds, count, err);
}

static void send_command(const struct stage *st, uint32_t kind)
{
    struct spawn_command command = {.kind = kind};
    (void)send(st->socket, &command, sizeof(command), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void kill_for(struct stage *st, enum kill_reason reason)
{
    if (st->kill)
        return;
    st->kill = reason;
    st->other_deadline_ns = clock_ns() + KILL_MS * 1000000ull;
    send_command(st, COMMAND_KILL);
}

/* Plans the next check for the earliest time at which the CPU limit can be reached. */
static void plan_cpu_check(struct stage *st, uint64_t used_ns)
{
    uint64_t limit_ns = st->spec->limits.cpu_ms * 1000000ull;
    uint64_t left_ns = limit_ns > used_ns ? limit_ns - used_ns : 0;
    uint64_t wait_ns = left_ns * 1000 / st->spec->limits.cpu_milli;
    st->cpu_check_ns = clock_ns() + (wait_ns > CPU_STEP_NS ? wait_ns : CPU_STEP_NS);
}

static void on_event(struct stage *st, const struct spawn_event *event)
{
    switch (event->kind) {
    case EVENT_STARTED:
        st->started = true;
        st->result->is_warm = event->flags & STARTED_WARM || st->held;
        st->result->cold_reason = st->result->is_warm ? NULL
                                  : st->cold_reason   ? st->cold_reason
                                                      : WARMTH_NOT_READY;
        st->other_deadline_ns = 0;
        st->wall_deadline_ns = event->start_ns + st->spec->limits.wall_ms * 1000000ull;
        plan_cpu_check(st, 0);
        if (st->spec->watch->started)
            st->spec->watch->started(st->spec->watch->context);
        break;
    case EVENT_USAGE:
        st->cpu_asked = false;
        if (event->cpu_ns >= st->spec->limits.cpu_ms * 1000000ull)
            kill_for(st, KILL_CPU);
        else
            plan_cpu_check(st, event->cpu_ns);
        break;
    case EVENT_EXITED:
        st->exited = true;
        st->other_deadline_ns = clock_ns() + COLLECT_MS * 1000000ull;
        break;
    case EVENT_ENDED:
    case EVENT_FAILED:
        st->end = *event;
        st->ended = true;
        break;
    default:
        break;
    }
}

/* Reads an event of the spawner. A broken socket is a failure of Hermes, never of the
 * program. */
static void read_socket(struct stage *st)
{
    struct spawn_event event;
    ssize_t n = recv(st->socket, &event, sizeof(event), MSG_DONTWAIT);
    /* A spawner that has reported the end closes its socket, perhaps before it read our last
     * command. The kernel then returns ECONNRESET once, and the event after that. */
    if (n < 0 && errno == ECONNRESET)
        n = recv(st->socket, &event, sizeof(event), MSG_DONTWAIT);
    if (n == (ssize_t)sizeof(event)) {
        on_event(st, &event);
    } else if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        st->end =
            (struct spawn_event){.kind = EVENT_FAILED, .step = STEP_SPAWNER, .error = -EPIPE};
        st->ended = true;
    }
}

/* Returns how many of the next n bytes of a stream are within its limit. Keeps those that fit
 * into the result. */
static size_t keep_output(struct stage *st, enum run_stream stream, const char *data, size_t n)
{
    struct buf *to = stream == STREAM_STDOUT ? &st->result->out : &st->result->err;
    bool *cut =
        stream == STREAM_STDOUT ? &st->result->out_truncated : &st->result->err_truncated;
    size_t kept = buf_append_some(to, data, n);
    if (kept < n)
        *cut = true;
    if (stream == STREAM_STDERR || !st->spec->stdout_max)
        return kept;
    uint64_t room = st->spec->stdout_max - st->stdout_bytes;
    size_t within = n < room ? n : (size_t)room;
    st->stdout_bytes += within;
    return within;
}

/* Reads once from a stream; false when nothing is there now. Output beyond the limit ends the
 * run; the output before it is kept. */
static bool read_stream(struct stage *st, enum run_stream stream)
{
    int *fd = stream == STREAM_STDOUT ? &st->out_fd : &st->err_fd;
    char *chunk = st->chunk;
    ssize_t n = read(*fd, chunk, CHUNK);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        if (n == 0 || errno != EINTR)
            close_fd(fd);
        return true;
    }
    size_t kept = keep_output(st, stream, chunk, (size_t)n);
    if (kept && st->spec->watch->output)
        st->spec->watch->output(st->spec->watch->context, stream, chunk, kept);
    if (kept < (size_t)n) {
        st->result->limits_hit |= HIT_OUTPUT;
        close_fd(fd);
        kill_for(st, KILL_OUTPUT);
    }
    return true;
}

static bool read_collected(struct stage *st)
{
    char *chunk = st->chunk;
    ssize_t n = read(st->collect_fd, chunk, CHUNK);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n > 0 && collect_reader_feed(st->collected, chunk, (size_t)n) == 0)
        return true;
    if (n > 0)
        st->collect_broken = true;
    if (n >= 0 || errno != EINTR)
        close_fd(&st->collect_fd);
    return true;
}

/* While the program waits for an approval, its wall time stands still. */
static void note_wait(struct stage *st)
{
    if (st->tally)
        st->waited_ns = network_tally_waited(st->tally, &st->is_waiting);
}

static uint64_t wall_deadline(const struct stage *st)
{
    return st->is_waiting ? UINT64_MAX : st->wall_deadline_ns + st->waited_ns;
}

/* Time until the next deadline, in ns; -1 for none. */
static int64_t next_deadline(const struct stage *st, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    if (st->other_deadline_ns)
        next = st->other_deadline_ns;
    if (st->started && !st->exited && !st->kill) {
        uint64_t wall = st->is_waiting ? now + WAITING_NS : wall_deadline(st);
        if (wall < next)
            next = wall;
        if (!st->cpu_asked && st->cpu_check_ns < next)
            next = st->cpu_check_ns;
    }
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int64_t)(next - now);
}

static void check_deadlines(struct stage *st)
{
    note_wait(st);
    uint64_t now = clock_ns();
    if (st->started && !st->exited && !st->kill) {
        if (now >= wall_deadline(st)) {
            kill_for(st, KILL_WALL);
        } else if (!st->cpu_asked && now >= st->cpu_check_ns) {
            st->cpu_asked = true;
            send_command(st, COMMAND_USAGE);
        }
    }
    if (st->other_deadline_ns && now >= st->other_deadline_ns) {
        if (!st->kill) {
            kill_for(st, KILL_LATE);
        } else {
            st->end = (struct spawn_event){
                .kind = EVENT_FAILED, .step = STEP_INIT, .error = -ETIMEDOUT};
            st->ended = true;
        }
    }
}

enum {
    WATCH_SOCKET,
    WATCH_OUT,
    WATCH_ERR,
    WATCH_COLLECT,
    WATCH_CANCEL,
    WATCH_SOURCE,
    WATCH_STDIN,
    WATCH_SINK_OUT,
    WATCH_SINK_ERR,
    WATCH_NETWORK,
    WATCH_COUNT
};

static void tell_attempts(struct stage *st)
{
    const struct run_watch *watch = st->spec->watch;
    struct network_row row;
    while (network_tally_next(st->tally, &row)) {
        if (watch->network)
            watch->network(watch->context, &row);
    }
}

static void poll_once(struct stage *st)
{
    const struct stage_result *result = st->result;
    struct pollfd fds[WATCH_COUNT] = {
        [WATCH_SOCKET] = {st->socket, POLLIN, 0},
        [WATCH_OUT] = {st->out_fd, POLLIN, 0},
        [WATCH_ERR] = {st->err_fd, POLLIN, 0},
        [WATCH_COLLECT] = {st->collect_fd, POLLIN, 0},
        [WATCH_CANCEL] = {st->kill ? -1 : st->spec->watch->cancel_fd, POLLIN, 0},
        [WATCH_NETWORK] = {st->tally ? network_tally_fd(st->tally) : -1, POLLIN, 0},
    };
    pump_in_prepare(&st->in, &fds[WATCH_SOURCE], &fds[WATCH_STDIN]);
    pump_out_prepare(&st->sinks[STREAM_STDOUT], &result->out, &fds[WATCH_SINK_OUT]);
    pump_out_prepare(&st->sinks[STREAM_STDERR], &result->err, &fds[WATCH_SINK_ERR]);
    int64_t wait_ns = next_deadline(st, clock_ns());
    struct timespec timeout = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    if (ppoll(fds, WATCH_COUNT, wait_ns < 0 ? NULL : &timeout, NULL) < 0)
        return;
    if (fds[WATCH_OUT].revents)
        (void)read_stream(st, STREAM_STDOUT);
    if (fds[WATCH_ERR].revents)
        (void)read_stream(st, STREAM_STDERR);
    if (fds[WATCH_COLLECT].revents)
        (void)read_collected(st);
    pump_in_move(&st->in, &fds[WATCH_SOURCE], &fds[WATCH_STDIN]);
    pump_out_move(&st->sinks[STREAM_STDOUT], &result->out, &fds[WATCH_SINK_OUT]);
    pump_out_move(&st->sinks[STREAM_STDERR], &result->err, &fds[WATCH_SINK_ERR]);
    if (fds[WATCH_NETWORK].revents)
        tell_attempts(st);
    if (fds[WATCH_CANCEL].revents || st->sinks[0].error || st->sinks[1].error)
        kill_for(st, KILL_CANCEL);
    if (fds[WATCH_SOCKET].revents)
        read_socket(st);
}

/* Every process that could write is dead or dying, so only the bytes that are in the pipes now
 * count. */
static void drain(struct stage *st)
{
    while (st->out_fd >= 0 && read_stream(st, STREAM_STDOUT))
        ;
    while (st->err_fd >= 0 && read_stream(st, STREAM_STDERR))
        ;
    while (st->collect_fd >= 0 && read_collected(st))
        ;
}

static void fill_usage(struct stage *st)
{
    const struct spawn_event *end = &st->end;
    struct run_usage *usage = &st->result->usage;
    note_wait(st);
    uint64_t wall_ns = st->started ? end->end_ns - end->start_ns : 0;
    wall_ns -= st->waited_ns < wall_ns ? st->waited_ns : wall_ns;
    usage->wall_ms = (double)wall_ns / 1e6;
    usage->cpu_ms = (double)end->cpu_ns / 1e6;
    usage->memory_peak_kb = end->memory_bytes / 1024;
    usage->setup_ms = (double)end->setup_ns / 1e6;
    st->result->ended_ns = end->end_ns;
}

/* The box is gone: takes the record of what it tried to reach. */
static void fill_network(struct stage *st)
{
    if (!st->tally)
        return;
    network_tally_finish(st->tally, true);
    tell_attempts(st);
    network_report_free(st->result->network);
    st->result->network = network_tally_end(take_ptr(st->tally));
    network_report_charge(st->result->network, st->spec->watch->purse);
    if (st->result->network->limit_hit)
        st->result->limits_hit |= HIT_NETWORK;
}

static void say(struct stage_result *result, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct stage_result *result, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(result->message, sizeof(result->message), fmt, args);
    va_end(args);
}

/* The verdict when the program ended without reaching a limit. */
static void judge_exit(struct stage_result *result, int status)
{
    if (WIFEXITED(status)) {
        result->exited = true;
        result->exit_code = WEXITSTATUS(status);
        result->status = result->exit_code == 0 ? RUN_OK : RUN_RUNTIME_ERROR;
    } else {
        result->signal = WTERMSIG(status);
        result->status = RUN_SIGNALED;
    }
}

static void judge(struct stage *st)
{
    struct stage_result *result = st->result;
    const struct run_limits *limits = &st->spec->limits;
    const struct spawn_event *end = &st->end;
    unsigned *hit = &result->limits_hit;
    if (end->flags & ENDED_PIDS)
        *hit |= HIT_PROCESSES;
    if (end->flags & ENDED_DISK)
        *hit |= HIT_DISK;
    if (end->flags & ENDED_OOM)
        *hit |= HIT_MEMORY;
    /* A program that ended by itself is judged by the measured usage: our order to kill it may
     * have come too late to matter. */
    bool exited = end->flags & ENDED_EXITED;
    if ((st->kill == KILL_WALL && !exited) || result->usage.wall_ms >= (double)limits->wall_ms)
        *hit |= HIT_WALL;
    if ((st->kill == KILL_CPU && !exited) || result->usage.cpu_ms >= (double)limits->cpu_ms)
        *hit |= HIT_CPU;
    if (exited)
        judge_exit(result, end->wait_status);
    if (st->kill == KILL_CANCEL && !exited) {
        result->status = RUN_CANCELLED;
        say(result, "cancelled");
    } else if (*hit & HIT_MEMORY) {
        result->status = RUN_MEMORY_LIMIT;
        say(result, "memory limit of %llu MiB reached", (unsigned long long)limits->memory_mb);
    } else if (*hit & HIT_OUTPUT) {
        result->status = RUN_OUTPUT_LIMIT;
        uint64_t max = st->spec->stdout_max;
        bool stdout_full = max && st->stdout_bytes == max;
        say(result, "wrote more than %llu KiB to a stream",
            (unsigned long long)(stdout_full ? max >> 10 : limits->output_kb));
    } else if (*hit & HIT_CPU) {
        result->status = RUN_TIME_LIMIT;
        say(result, "CPU time limit of %llu ms reached", (unsigned long long)limits->cpu_ms);
    } else if (*hit & HIT_WALL) {
        result->status = RUN_TIME_LIMIT;
        say(result, "wall time limit of %llu ms reached", (unsigned long long)limits->wall_ms);
    }
    if (result->status != RUN_OK && result->status != RUN_RUNTIME_ERROR) {
        result->exited = false;
        if (result->status != RUN_SIGNALED)
            result->signal = 0;
    }
    bool missing = st->kill == KILL_LATE || st->collect_broken ||
                   (st->collected && (!st->collected->ended || st->collected->cut));
    if (missing && !result->message[0])
        say(result, "not all files could be collected");
}

/* Errors of execve that only the machine can cause. All others can be caused by a file of the
 * user, for example one that is not a program. */
static bool is_host_error(int error)
{
    return error == -EAGAIN || error == -EINTR || error == -EIO || error == -EMFILE ||
           error == -ENFILE || error == -ENOSPC;
}

/* A directory of the run could not be mounted. Another run may have put a link in its place. */
static int fail_mount(const struct stage *st, const struct run_mount *mount, struct err *err)
{
    int error = -st->end.error;
    bool is_blocked = error == ELOOP || error == ENOTDIR;
    return err_set(err, is_blocked ? ERR_CONFLICT : err_code_of(error), error,
        "cannot mount a directory at %s: %s; the program did not start", mount->path,
        is_blocked ? "a link or a file is in the way" : strerror(error));
}

/* Turns the end of the box into a result, or into an error when Hermes failed. */
static int conclude(struct stage *st, struct err *err)
{
    struct stage_result *result = st->result;
    const struct spawn_event *end = &st->end;
    size_t which = (size_t)end->wait_status;
    if (end->kind == EVENT_FAILED && end->step == STEP_MOUNT &&
        which - 1 < st->spec->mount_count)
        return fail_mount(st, &st->spec->mounts[which - 1], err);
    if (end->kind == EVENT_FAILED)
        return err_set(err, err_code_of(-end->error), -end->error,
            "cannot %s: %s; the program did not start", spawner_step_text(end->step),
            strerror(-end->error));
    drain(st);
    fill_usage(st);
    fill_network(st);
    if (result->out.is_starved || result->err.is_starved ||
        (st->collected && st->collected->is_starved))
        return err_set(err, ERR_UNAVAILABLE, ENOMEM,
            "the server has no memory left for what the program wrote; try again later, or ask "
            "for less output");
    if ((end->flags & ENDED_EXEC_FAILED) && end->error == -E2BIG)
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "arguments and variables are too long for a program; give them as files or stdin");
    if (end->flags & ENDED_EXEC_FAILED) {
        if (!str_has_prefix(st->spec->exec_path, "/box/") || is_host_error(end->error))
            return err_set(err, ERR_INTERNAL, -end->error, "cannot execute %s: %s",
                st->spec->exec_path, strerror(-end->error));
        result->status = RUN_RUNTIME_ERROR;
        result->exited = true;
        result->exit_code = 126;
        say(result, "cannot execute the program: %s", strerror(-end->error));
        return 0;
    }
    if (end->flags & ENDED_SHORT)
        return err_set(err, ERR_UNAVAILABLE, ENOMEM,
            "the machine ran out of memory and ended a process of the box; try again later");
    bool explained = st->kill || (end->flags & (ENDED_EXITED | ENDED_OOM)) ||
                     (result->limits_hit & HIT_OUTPUT);
    if (!explained)
        return err_set(err, ERR_INTERNAL, ECHILD, "the box's init died");
    if (st->kill == KILL_LATE && !st->started)
        return err_set(err, ERR_UNAVAILABLE, ETIMEDOUT,
            "the box was not ready after %d s; the machine is overloaded", START_MS / 1000);
    judge(st);
    bool is_own_end = result->status == RUN_RUNTIME_ERROR || result->status == RUN_SIGNALED;
    if (end->flags & ENDED_CROWDED && is_own_end)
        return err_set(err, ERR_UNAVAILABLE, EAGAIN,
            "the program was refused a process because all programs together have as many as "
            "they may (processes_total), and it failed");
    return 0;
}

int stage_run(struct spawner_client *spawner, const struct stage_spec *spec,
    struct stage_result *result, struct collect_reader *collected, struct err *err)
{
    /* A small buffer on the stack: hundreds of threads of a server run stages, and malloc() of
     * this size would consolidate its free lists each time. */
    char chunk[CHUNK];
    cleanup_free char *pump = spec->stdin_fd >= 0 ? xmalloc(PUMP_BUFFER) : NULL;
    const int *sinks = spec->watch->sink_fds;
    struct stage state = {.spec = spec,
        .result = result,
        .collected = collected,
        .socket = -1,
        .out_fd = -1,
        .err_fd = -1,
        .collect_fd = -1,
        .channel = -1,
        .cold_reason = spec->cold_reason,
        .in = {.source_fd = -1, .box_fd = -1, .buffer = pump},
        .chunk = chunk,
        .sinks = {{.fd = sinks ? sinks[0] : -1}, {.fd = sinks ? sinks[1] : -1}},
        .other_deadline_ns = clock_ns() + START_MS * 1000000ull};
    struct stage *st = &state;
    result->out.purse = result->err.purse = spec->watch->purse;
    if (collected)
        collect_reader_count(collected, spec->watch->purse);
    int r = request_box(st, spawner, err);
    if (r == 0)
        r = spawner_ready(spawner, err);
    while (r == 0 && !st->ended) {
        check_deadlines(st);
        if (!st->ended)
            poll_once(st);
    }
    hear_copy(st);
    if (r == 0)
        r = conclude(st, err);
    if (st->held)
        spec->templates->give(spec->templates->context, st->held);
    pump_out_finish(&st->sinks[STREAM_STDOUT], &result->out);
    pump_out_finish(&st->sinks[STREAM_STDERR], &result->err);
    if (spec->watch->sink_error)
        *spec->watch->sink_error = st->sinks[0].error ? st->sinks[0].error : st->sinks[1].error;
    network_tally_drop(st->tally);
    network_link_unref(st->link);
    close_fd(&st->socket);
    close_fd(&st->channel);
    close_fd(&st->out_fd);
    close_fd(&st->err_fd);
    close_fd(&st->in.box_fd);
    close_fd(&st->collect_fd);
    return r;
}

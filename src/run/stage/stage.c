/* SPDX-License-Identifier: Apache-2.0 */

/* See stage.h. One poll() covers the box's socket, its streams, its files, the cancellation and
 * the next deadline. The spawner reports when the program may run and how the box ended; this
 * file decides when to kill.
 *
 * CPU time is checked at the earliest time at which it can have run out: the time left, divided
 * by the cores that the box may use. */

#include "run/stage/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "run/warmth.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CHUNK = 16384,           /* bytes of one read */
    CPU_STEP_NS = 2000000,   /* least time between two checks of the CPU time */
    WAITING_NS = 1000000000, /* between two looks at a program that waits for an approval */
    COLLECT_MS = 10000,      /* most time for collecting files, after the program ended */
    KILL_MS = 10000,         /* most time for a killed box to be gone */
};

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

void stage_on_event(struct stage *st, const struct spawn_event *event)
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
        stage_on_event(st, &event);
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

/* The box is gone: takes the record of its network attempts. */
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

/* Turns the end of the box into a result, or into an error when Hermes failed. */
static int conclude(struct stage *st, struct err *err)
{
    if (st->end.kind == EVENT_FAILED)
        return stage_fail(st, err);
    drain(st);
    fill_usage(st);
    fill_network(st);
    return stage_judge(st, err);
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
        .other_deadline_ns = clock_ns() + STAGE_START_MS * 1000000ull};
    struct stage *st = &state;
    result->out.purse = result->err.purse = spec->watch->purse;
    if (collected)
        collect_reader_count(collected, spec->watch->purse);
    int r = stage_request(st, spawner, err);
    if (r == 0)
        r = spawner_ready(spawner, err);
    while (r == 0 && !st->ended) {
        check_deadlines(st);
        if (!st->ended)
            poll_once(st);
    }
    stage_hear_copy(st);
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

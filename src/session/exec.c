/* SPDX-License-Identifier: Apache-2.0 */

/* Runs one piece of code in a session, from the frame `exec` to the frame `done`. One poll()
 * covers the channel, the output, the spawner's events, the caller and the next deadline.
 *
 * Code that must stop is interrupted first. An interpreter that then sends `done` keeps its
 * state. One that does not within the grace period is killed, and the session is dead. The same
 * happens when a frame is invalid or out of turn: then user code has written to the channel. */

#include "session/backend.h"
#include "session/host.h"
#include "session/overflow.h"

#include "approval/approval.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_FILE(stream) ".hermes/" stream ".txt"
#define FOREIGN_WORDS "something wrote to the interpreter's channel to the server"

enum {
    CHUNK = 64 << 10,  /* bytes per read */
    GRACE_MS = 2000,   /* from the interrupt to the kill */
    WORD_MS = 10000,   /* for an event of the spawner; generous, for a very busy machine */
    SETTLED_MS = 5000, /* for the frame `settled`, between two execs */
    /* Bytes read after `done`; a background process may print without end. */
    DRAIN_MAX = 4 << 20,
    /* Bytes. Code is stopped when it has printed more than this, and more than four times the
     * output that is kept. */
    OUTPUT_MAX = 64 << 20,
    CPU_STEP_MS = 2,  /* shortest time between two questions about CPU time */
    STARVED_MS = 50,  /* pause before the channel is read again, when memory was short */
    PAUSED_MS = 1000, /* between two looks at an exec that waits for an approval */
};

enum cause { CAUSE_NONE, CAUSE_WALL, CAUSE_CPU, CAUSE_OUTPUT, CAUSE_CANCEL, CAUSE_END };

static const struct {
    enum run_status status;
    unsigned hit;
    const char *reason; /* why the session died, if this exec ended it */
    const char *message;
} causes[] = {
    [CAUSE_WALL] = {RUN_TIME_LIMIT, HIT_WALL, "time_limit", "stopped at its timeout"},
    [CAUSE_CPU] = {RUN_TIME_LIMIT, HIT_CPU, "time_limit", "stopped at its CPU time limit"},
    [CAUSE_OUTPUT] = {RUN_OUTPUT_LIMIT, HIT_OUTPUT, "output_limit",
        "stopped because it printed too much"},
    [CAUSE_CANCEL] = {RUN_CANCELLED, 0, "cancelled", "stopped because its caller left"},
    [CAUSE_END] = {RUN_CANCELLED, 0, "deleted", "stopped because the session was ended"},
};

struct exec {
    struct session *s;
    const struct exec_spec *spec;
    const struct exec_watch *watch;
    struct exec_result *result;
    struct exec_frames frames;
    enum cause cause; /* why the code is being stopped */
    bool is_lost;     /* the interpreter is gone or was given up */
    bool is_failure;  /* Hermes failed, not the code */
    bool out_ended, err_ended, channel_ended;
    bool is_starved; /* there was no memory for a frame: read it later */
    uint64_t streamed[2];
    struct session_changes changes;
    bool has_changes;            /* the result has the changed files */
    struct network_tally *tally; /* NULL: no network */
    uint64_t waited_ms;          /* for approvals of connections, so far */
    uint64_t asked_ms;           /* for approvals of tool calls, so far */
    uint64_t asked_until_ms;     /* they are counted up to this time */
    uint64_t installed_ms;       /* for packages that the code asked for, so far */
    uint64_t install_from_ms;    /* they are counted up to this time; 0: none is open */
    struct spill spills[2];      /* stdout, stderr */
    uint64_t begin_ns;
    uint64_t deadline_ms;
    uint64_t grace_ms;     /* end of the grace period, once stopped */
    uint64_t cpu_check_ms; /* UINT64_MAX: no limit, or the question is already sent */
    unsigned usages;       /* answers to COMMAND_USAGE that have not come yet */
    bool is_interrupting;  /* EVENT_INTERRUPTED has not come yet */
    bool was_interrupted;  /* at least one SIGINT was sent */
    bool is_repeated;      /* the second SIGINT was sent */
    bool has_base;
    uint64_t base_cpu_ns;
    struct spawn_event usage; /* the latest answer */
    char chunk[CHUNK];
};

void exec_spec_done(struct exec_spec *spec)
{
    free(spec->code);
    free(spec->stdin_data);
    json_decref(spec->tools);
    *spec = (struct exec_spec){0};
}

/* Linux merges pending signals of one kind. So wait until the last one is confirmed before the
 * next one is sent. */
static void interrupt(struct exec *e)
{
    if (!e->is_interrupting)
        session_box_command(&e->s->box, COMMAND_INTERRUPT);
    e->is_interrupting = e->was_interrupted = true;
}

static void stop_for(struct exec *e, enum cause cause)
{
    if (e->cause)
        return;
    e->cause = cause;
    install_cancel(e->s);
    bool is_gentle = cause != CAUSE_END && !e->spec->preview;
    e->grace_ms = clock_ms() + (is_gentle ? GRACE_MS : 0);
    if (is_gentle)
        interrupt(e);
}

static void ask_usage(struct exec *e, bool is_last)
{
    struct session *s = e->s;
    (void)pthread_mutex_lock(&s->lock); /* terminals may open or close on other threads */
    session_box_ask_usage(&s->box, is_last && !s->terminals && !e->was_interrupted);
    (void)pthread_mutex_unlock(&s->lock);
    e->usages++;
}

static uint64_t used_cpu_ns(const struct exec *e)
{
    return e->usage.cpu_ns > e->base_cpu_ns ? e->usage.cpu_ns - e->base_cpu_ns : 0;
}

/* Sets the next check to the earliest time at which the CPU limit can be reached. */
static void plan_cpu_check(struct exec *e)
{
    const struct run_limits *limits = &e->s->spec.limits;
    if (!e->s->names_cpu || e->cause)
        return;
    uint64_t used_ms = used_cpu_ns(e) / 1000000;
    if (used_ms >= limits->cpu_ms) {
        stop_for(e, CAUSE_CPU);
        return;
    }
    uint64_t wait_ms = (limits->cpu_ms - used_ms) * 1000 / limits->cpu_milli;
    e->cpu_check_ms = clock_ms() + (wait_ms > CPU_STEP_MS ? wait_ms : CPU_STEP_MS);
}

static void on_usage(struct exec *e, const struct spawn_event *event)
{
    if (e->usages)
        e->usages--;
    e->usage = *event;
    session_measure(e->s, event);
    if (!e->has_base)
        e->base_cpu_ns = event->cpu_ns;
    e->has_base = true;
    plan_cpu_check(e);
}

static void lose(struct exec *e, const struct spawn_event *event)
{
    e->is_lost = true;
    bool is_end = event->kind == EVENT_ENDED;
    e->is_failure = event->kind != EVENT_EXITED &&
                    !(is_end && (event->flags & ENDED_OOM || e->spec->preview));
    if (is_end)
        session_charge(e->s, event->cpu_ns);
    session_note_end(e->s, event);
    if (event->kind == EVENT_ENDED && event->flags & ENDED_OOM) {
        e->result->status = RUN_MEMORY_LIMIT;
        e->result->limits_hit |= HIT_MEMORY;
        e->usage = *event;
        e->usage.peak_bytes = event->memory_bytes;
    } else if (event->kind == EVENT_EXITED) {
        bool exited = WIFEXITED(event->wait_status);
        e->result->status = exited ? RUN_RUNTIME_ERROR : RUN_SIGNALED;
        e->result->exited = exited;
        e->result->exit_code = exited ? WEXITSTATUS(event->wait_status) : 0;
    } else if (e->spec->preview) {
        e->result->status = RUN_RUNTIME_ERROR; /* a copy's status is not known */
    }
}

static void on_box(struct exec *e)
{
    struct spawn_event event = {.kind = EVENT_FAILED};
    int r = session_event(e->s, &event);
    if (r == 0)
        return;
    if (r < 0) {
        event = (struct spawn_event){.kind = EVENT_FAILED};
        lose(e, &event);
        return;
    }
    switch (event.kind) {
    case EVENT_USAGE:
        on_usage(e, &event);
        break;
    case EVENT_INTERRUPTED:
        e->is_interrupting = false;
        break;
    case EVENT_EXITED:
    case EVENT_ENDED:
        lose(e, &event);
        break;
    default:
        break;
    }
}

/* Keeps n bytes of the chunk, and passes them on. */
static void take_output(struct exec *e, enum run_stream stream, size_t n)
{
    struct capture *to = stream == STREAM_STDOUT ? &e->result->out : &e->result->err;
    uint64_t room = to->max - e->streamed[stream];
    size_t shown = n < room ? n : (size_t)room;
    if (shown && e->watch->output)
        e->watch->output(e->watch->context, stream, e->chunk, shown);
    e->streamed[stream] += shown;
    spill_add(&e->spills[stream], e->s, to, e->chunk, n);
    capture_add(to, e->chunk, n);
    if (to->total > OUTPUT_MAX && to->total / 4 > to->max)
        stop_for(e, CAUSE_OUTPUT);
}

/* Reads once. False when there is nothing to read now. */
static bool read_stream(struct exec *e, enum run_stream stream)
{
    bool is_out = stream == STREAM_STDOUT;
    ssize_t n = read(is_out ? e->s->box.out_fd : e->s->box.err_fd, e->chunk, CHUNK);
    if (n == 0)
        *(is_out ? &e->out_ended : &e->err_ended) = true;
    if (n <= 0)
        return n < 0 && errno == EINTR;
    take_output(e, stream, (size_t)n);
    return true;
}

/* The log of packages that are being installed is output of the exec that asked for them. */
static void read_install(struct exec *e)
{
    ssize_t n = install_read(e->s, e->chunk, CHUNK);
    if (n > 0)
        take_output(e, STREAM_STDERR, (size_t)n);
}

/* Reads what the code printed before `done`. */
static void drain(struct exec *e)
{
    for (size_t i = 0; i < DRAIN_MAX / CHUNK && read_stream(e, STREAM_STDOUT); i++)
        ;
    for (size_t i = 0; i < DRAIN_MAX / CHUNK && read_stream(e, STREAM_STDERR); i++)
        ;
}

/* An interpreter that was interrupted may still owe an answer about a preview. */
static bool is_over(const struct exec *e)
{
    return e->frames.is_done && !preview_is_asking(e->s);
}

/* Reads once and handles the complete frames. -EBADMSG for an invalid one. */
static int on_channel(struct exec *e)
{
    struct channel *c = &e->s->channel;
    struct channel_frame frame;
    int r = channel_read(c);
    if (r == -EPIPE || r == -ENOMEM)
        return r;
    while ((r = channel_next(c, &frame)) == 1 && !is_over(e)) {
        if (frames_take(&e->frames, &frame) < 0)
            return -EBADMSG;
    }
    return r < 0 || (is_over(e) && !channel_is_clean(c)) || r == 1 ? -EBADMSG : 0;
}

/* Ends the interpreter. Outstanding answers of the spawner will not come any more. */
static void end_kernel(struct exec *e)
{
    session_stop_kernel(e->s);
    e->usages = 0;
    e->is_interrupting = false;
}

static void lose_for_protocol(struct exec *e, const char *why)
{
    end_kernel(e);
    session_lose(e->s, "protocol", "%s", why);
    e->is_lost = true;
    e->result->status = RUN_RUNTIME_ERROR;
}

static void on_wake(struct exec *e)
{
    struct session *s = e->s;
    uint64_t count;
    ssize_t n = read(s->wake_fd, &count, sizeof(count));
    (void)n;
    (void)pthread_mutex_lock(&s->lock);
    unsigned interrupts = s->interrupts;
    s->interrupts = 0;
    (void)pthread_mutex_unlock(&s->lock);
    if (interrupts)
        interrupt(e);
    if (session_must_end(s))
        stop_for(e, CAUSE_END);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Passes on approved calls. The time that an exec waits for approvals does not count for it,
 * up to a maximum: code that keeps asking must still end. Returns whether a call waits for
 * an approval. */
static bool tend_approvals(struct exec *e)
{
    struct session *s = e->s;
    (void)pthread_mutex_lock(&s->lock);
    uint64_t paused_ms = tools_paused_ms(s);
    (void)pthread_mutex_unlock(&s->lock);
    if (!paused_ms)
        return false;
    if (preview_is_stuck(s)) { /* the interpreter has it in hand to go on */
        e->asked_until_ms = clock_ms();
        return false;
    }
    if (!preview_is_open(s))
        frames_tell_approved(&e->frames);
    (void)pthread_mutex_lock(&s->lock);
    bool is_over = !tools_paused_ms(s);
    (void)pthread_mutex_unlock(&s->lock);
    uint64_t max_ms = approvals_wait_max_ms(s->all->state->approvals);
    uint64_t now = clock_ms();
    uint64_t from_ms = paused_ms > e->asked_until_ms ? paused_ms : e->asked_until_ms;
    uint64_t more_ms = smaller(now - from_ms, max_ms - e->asked_ms);
    e->asked_until_ms = now;
    e->asked_ms += more_ms;
    e->deadline_ms += more_ms;
    return !is_over && e->asked_ms < max_ms;
}

/* Likewise for connections. Returns whether one waits. */
static bool tend_connections(struct exec *e)
{
    bool is_waiting = false;
    uint64_t waited_ms = e->tally ? network_tally_waited(e->tally, &is_waiting) / 1000000 : 0;
    e->deadline_ms += waited_ms - e->waited_ms;
    e->waited_ms = waited_ms;
    return is_waiting;
}

/* Likewise for packages that the code asked for: their build has a limit of its own. The time
 * that all of them may take together is that of one build. */
static bool tend_install(struct exec *e)
{
    uint64_t now = clock_ms();
    bool is_open = install_is_open(e->s);
    uint64_t max_ms = e->s->all->state->config.build_wall_ms;
    uint64_t more_ms =
        e->install_from_ms ? smaller(now - e->install_from_ms, max_ms - e->installed_ms) : 0;
    e->install_from_ms = is_open ? now : 0;
    e->installed_ms += more_ms;
    e->deadline_ms += more_ms;
    return is_open && e->installed_ms < max_ms;
}

static void take_changes(struct exec *e)
{
    if (!e->changes.is_asked)
        session_changes_ask(e->s, &e->changes);
    e->result->files_changed = session_changes_end(e->s, &e->changes, &e->result->files_cut);
    e->has_changes = true;
}

/* Acts on deadlines that have passed. Returns the time of the next one. */
static uint64_t check_deadlines(struct exec *e)
{
    struct session *s = e->s;
    uint64_t preview_ms = preview_tend(s);
    uint64_t tools_ms = smaller(preview_ms, place_tend(s, e->cause, &e->deadline_ms));
    bool is_asking = tend_approvals(e);
    bool is_installing = tend_install(e);
    bool is_paused = tend_connections(e) || is_asking || is_installing;
    uint64_t wall_ms = place_is_returning(s) || is_paused ? UINT64_MAX : e->deadline_ms;
    uint64_t now = clock_ms();
    if (!e->cause && now >= wall_ms)
        stop_for(e, CAUSE_WALL);
    if (!e->cause && now >= e->cpu_check_ms) {
        e->cpu_check_ms = UINT64_MAX;
        ask_usage(e, false);
    }
    /* The interpreter may lose a signal, or the code may catch one: send a second. */
    if (e->cause && e->cause != CAUSE_END && !e->is_repeated && !e->spec->preview &&
        now + GRACE_MS / 2 >= e->grace_ms) {
        e->is_repeated = true;
        interrupt(e);
    }
    if (e->cause && now >= e->grace_ms) {
        if (e->spec->preview && e->cause != CAUSE_CANCEL) /* the files of a preview end with
                                                           * it */
            take_changes(e);
        end_kernel(e);
        session_lose(s, causes[e->cause].reason,
            "the code did not stop when it was interrupted, so the interpreter was ended");
        e->is_lost = true;
        return now;
    }
    if (e->cause)
        return e->is_repeated ? e->grace_ms : e->grace_ms - GRACE_MS / 2;
    if (is_paused)
        wall_ms = now + PAUSED_MS;
    return smaller(smaller(wall_ms, e->cpu_check_ms), tools_ms);
}

enum {
    WATCH_BOX,
    WATCH_CHANNEL,
    WATCH_OUT,
    WATCH_ERR,
    WATCH_WAKE,
    WATCH_CANCEL,
    WATCH_PLACE,
    WATCH_NETWORK,
    WATCH_INSTALL,
    WATCH_COUNT
};

static void tell_attempts(struct exec *e)
{
    struct network_row row;
    while (network_tally_next(e->tally, &row)) {
        json_t *json = e->watch->event ? network_row_json(&row) : NULL;
        if (json)
            e->watch->event(e->watch->context, "network", json);
        json_decref(json);
    }
}

static void poll_once(struct exec *e)
{
    struct session *s = e->s;
    uint64_t next_ms = check_deadlines(e);
    uint64_t now = clock_ms();
    if (e->is_lost)
        return;
    struct pollfd fds[WATCH_COUNT] = {
        [WATCH_BOX] = {s->box.socket, POLLIN, 0},
        [WATCH_CHANNEL] = {e->channel_ended || e->is_starved ? -1 : s->box.channel_fd, POLLIN,
            0},
        [WATCH_OUT] = {e->out_ended ? -1 : s->box.out_fd, POLLIN, 0},
        [WATCH_ERR] = {e->err_ended ? -1 : s->box.err_fd, POLLIN, 0},
        [WATCH_WAKE] = {s->wake_fd, POLLIN, 0},
        [WATCH_CANCEL] = {e->cause ? -1 : e->watch->cancel_fd, POLLIN, 0},
        [WATCH_PLACE] = {place_fd(s), POLLIN, 0},
        [WATCH_NETWORK] = {e->tally ? network_tally_fd(e->tally) : -1, POLLIN, 0},
        [WATCH_INSTALL] = {install_fd(s), POLLIN, 0},
    };
    if (channel_has_more(&s->channel))
        fds[WATCH_CHANNEL].events |= POLLOUT;
    uint64_t wait_ms = next_ms > now ? next_ms - now : 0;
    if (e->is_starved)
        wait_ms = smaller(wait_ms, STARVED_MS);
    e->is_starved = false;
    if (poll(fds, WATCH_COUNT, wait_ms < 60000 ? (int)wait_ms : 60000) < 0)
        return;
    if (fds[WATCH_OUT].revents)
        (void)read_stream(e, STREAM_STDOUT);
    if (fds[WATCH_ERR].revents)
        (void)read_stream(e, STREAM_STDERR);
    if (fds[WATCH_WAKE].revents)
        on_wake(e);
    if (fds[WATCH_CANCEL].revents)
        stop_for(e, CAUSE_CANCEL);
    if (fds[WATCH_NETWORK].revents)
        tell_attempts(e);
    if (fds[WATCH_INSTALL].revents)
        read_install(e);
    int r = fds[WATCH_CHANNEL].revents & (POLLIN | POLLHUP) ? on_channel(e) : 0;
    if (r == 0 && !e->channel_ended && channel_has_more(&s->channel))
        r = channel_write(&s->channel);
    e->is_starved = r == -ENOMEM;
    e->channel_ended = e->channel_ended || r == -EPIPE; /* the spawner's event says why */
    if (r == -EBADMSG)
        lose_for_protocol(e, FOREIGN_WORDS);
    else if (fds[WATCH_BOX].revents && !is_over(e))
        on_box(e);
}

/* Queues the frames that begin an exec. */
static int send_code(struct exec *e)
{
    struct channel *c = &e->s->channel;
    const struct exec_spec *spec = e->spec;
    int r = 0;
    if (spec->preview)
        return preview_resume(e->s, spec->preview);
    if (spec->stdin_size)
        r = channel_queue(c, "stdin", spec->stdin_data, spec->stdin_size);
    if (r == 0 && spec->tools) {
        cleanup_free char *text = json_dumps(spec->tools, JSON_COMPACT);
        r = text ? channel_queue(c, "tools", text, strlen(text)) : -ENOMEM;
    }
    if (r == 0)
        r = channel_queue(c, "exec", spec->code, spec->code_len);
    return r < 0 ? r : channel_write(c);
}

/* Asks for the usage and waits until the spawner has answered this and everything before it. */
static void settle(struct exec *e, bool is_last)
{
    uint64_t until_ms = clock_ms() + WORD_MS;
    ask_usage(e, is_last);
    while (e->s->box.socket >= 0 && (e->usages || e->is_interrupting)) {
        struct pollfd ready = {.fd = e->s->box.socket, .events = POLLIN};
        uint64_t now = clock_ms();
        if (now >= until_ms || poll(&ready, 1, (int)(until_ms - now)) < 0)
            break;
        on_box(e);
    }
}

/* The signal was delivered, but the interpreter may not have handled it yet. Wait until it has,
 * or the signal would interrupt the next exec. */
static void let_signal_pass(struct exec *e)
{
    struct channel_frame answer = {0};
    if (!e->was_interrupted || e->is_lost || !e->frames.is_done)
        return;
    int r = channel_queue(&e->s->channel, "settle", NULL, 0);
    if (r == 0)
        r = channel_await(&e->s->channel, SETTLED_MS, &answer);
    if (r == -EPIPE)
        return; /* the next exec reports that the interpreter is gone */
    if (r == -ETIMEDOUT)
        lose_for_protocol(e, "the interpreter did not answer after it was interrupted");
    else if (r < 0 || answer.kind != FRAME_SETTLED || !channel_is_clean(&e->s->channel))
        lose_for_protocol(e, FOREIGN_WORDS);
}

static void fill_usage(struct exec *e)
{
    struct session *s = e->s;
    struct run_usage *usage = &e->result->usage;
    usage->cpu_ms = (double)used_cpu_ns(e) / 1e6;
    usage->memory_peak_kb = e->usage.peak_bytes / 1024;
    if (e->usage.flags & ENDED_PIDS && !s->told_pids) {
        s->told_pids = true;
        e->result->limits_hit |= HIT_PROCESSES;
    }
    if (capture_is_cut(&e->result->out) || capture_is_cut(&e->result->err) ||
        e->result->displays_cut)
        e->result->limits_hit |= HIT_OUTPUT;
}

/* Takes the record of what was tried since the exec began. */
static void fill_network(struct exec *e)
{
    struct exec_result *result = e->result;
    if (!e->tally)
        return;
    network_tally_finish(e->tally, e->s->box.socket < 0);
    tell_attempts(e);
    result->network = network_tally_end(take_ptr(e->tally));
    network_report_charge(result->network, &result->purse.counts);
    if (result->network->limit_hit)
        result->limits_hit |= HIT_NETWORK;
}

/* Sets status and message of an exec that was stopped or lost its interpreter. */
static void judge(struct exec *e)
{
    struct exec_result *result = e->result;
    struct session *s = e->s;
    if (e->cause && result->status != RUN_MEMORY_LIMIT) {
        result->status = causes[e->cause].status;
        result->limits_hit |= causes[e->cause].hit;
        (void)snprintf(result->message, sizeof(result->message), "%s%s",
            causes[e->cause].message,
            e->is_lost ? "; it did not react to an interrupt, so the interpreter was ended and "
                         "its state is lost"
                       : "");
    } else if (e->is_lost) {
        (void)snprintf(result->message, sizeof(result->message),
            "%s; the session's state is lost", s->message);
    }
    result->state_lost = result->state_lost || e->is_lost;
}

static struct exec *exec_new(struct session *s, const struct exec_spec *spec,
    const struct exec_watch *watch, struct exec_result *result)
{
    struct exec *e = xmalloc(sizeof(*e));
    memset(e, 0, offsetof(struct exec, chunk));
    e->s = s;
    e->spec = spec;
    e->watch = watch;
    e->result = result;
    e->frames = (struct exec_frames){.s = s, .watch = watch, .result = result};
    e->begin_ns = clock_ns();
    e->deadline_ms =
        clock_ms() + (spec->timeout_ms ? spec->timeout_ms : s->spec.limits.wall_ms);
    e->cpu_check_ms = UINT64_MAX;
    spill_init(&e->spills[STREAM_STDOUT], s->all->state->spills, s->owner_index);
    spill_init(&e->spills[STREAM_STDERR], s->all->state->spills, s->owner_index);
    for (int i = 0; i < 2; i++)
        e->spills[i].has_failed = spec->preview; /* the whole output of a preview is not kept */
    return e;
}

int session_begin(
    struct session *s, const struct exec_spec *spec, int cancel_fd, struct err *err)
{
    int r = session_take(s, spec->wait, false, cancel_fd, err);
    if (r < 0)
        return r;
    r = host_approve_exec(s, spec, cancel_fd, err);
    if (r == 0)
        r = place_take(s, cancel_fd, err);
    if (r < 0)
        session_give(s);
    return r;
}

void session_abandon(struct session *s)
{
    place_leave(s);
    session_give(s);
}

/* Writes the whole output into the box when the answer has only both ends of it. */
static void deliver_output(struct exec *e)
{
    struct exec_result *result = e->result;
    if (spill_deliver(&e->spills[STREAM_STDOUT], e->s, OUTPUT_FILE("stdout")))
        result->out_file = OUTPUT_FILE("stdout");
    if (spill_deliver(&e->spills[STREAM_STDERR], e->s, OUTPUT_FILE("stderr")))
        result->err_file = OUTPUT_FILE("stderr");
    spill_done(&e->spills[STREAM_STDOUT]);
    spill_done(&e->spills[STREAM_STDERR]);
}

static void finish(struct exec *e)
{
    struct session *s = e->s;
    struct exec_result *result = e->result;
    install_end(s);
    preview_end(s);
    drain(e);
    if (!e->has_changes)
        session_changes_ask(s, &e->changes);
    settle(e, true); /* a signal that is still on its way would interrupt the next exec */
    let_signal_pass(e);
    result->usage.wall_ms =
        (double)(clock_ns() - e->begin_ns) / 1e6 - (double)(e->waited_ms + e->installed_ms);
    if (!e->has_changes)
        take_changes(e);
    deliver_output(e);
    fill_usage(e);
    fill_network(e);
    judge(e);
    result->tool_calls = s->tools.made;
    (void)pthread_mutex_lock(&s->lock);
    if (e->frames.is_done)
        s->execution_count = result->execution_count;
    else
        result->execution_count = s->execution_count;
    result->cwd = xstrdup(s->cwd);
    result->backend = session_backend_json(s);
    (void)pthread_mutex_unlock(&s->lock);
    channel_rest(&s->channel);
    tools_end(s);
    result->usage.queue_ms = s->place.ticket.queue_ms;
    place_leave(s);
    if (s->box.socket >= 0) /* otherwise it was charged when the box ended */
        session_charge(s, e->usage.cpu_ns);
    if (!e->spec->preview)
        s->all->state->metrics.execs[result->status]++;
}

static int lost_error(const struct session *s, struct err *err)
{
    (void)err_set(err, s->spec.place ? ERR_BACKEND : ERR_INTERNAL, ECHILD,
        "%s; the session's state is lost", s->message);
    err->kind = s->spec.place ? place_error_name(PLACE_LOST) : NULL;
    return -ECHILD;
}

int session_exec(struct session *s, const struct exec_spec *spec,
    const struct exec_watch *watch, struct exec_result *result, struct err *err)
{
    struct exec *e = exec_new(s, spec, watch, result);
    size_t output_max = spec->preview ? PREVIEW_OUTPUT : s->spec.limits.output_kb << 10;
    *result = (struct exec_result){.displays = json_array(), .status = RUN_INTERNAL_ERROR};
    purse_open(&result->purse, s->all->state->ledger, s->owner_index);
    result->approvals = take_ptr(s->approvals);
    /* Output from before this exec does not belong to it. */
    session_discard_output(s);
    capture_init(&result->out, output_max, &result->purse.counts);
    capture_init(&result->err, output_max, &result->purse.counts);
    tools_begin(s, spec);
    session_changes_begin(s, &e->changes);
    e->tally = session_network_follow(s->network);
    settle(e, false); /* sets the base: CPU time of background processes is not this exec's */
    int r = e->is_lost ? 0 : send_code(e);
    while (!is_over(e) && !e->is_lost && r != -ENOMEM && r != -EMSGSIZE)
        poll_once(e);
    finish(e);
    bool is_failure = e->is_failure;
    free(e);
    if (is_failure)
        r = lost_error(s, err);
    else if (r == -ENOMEM)
        r = state_full(err);
    else if (r == -EMSGSIZE)
        r = err_set(err, ERR_TOO_LARGE, EMSGSIZE,
            "code and stdin together are too large for the channel");
    else
        r = 0;
    session_give(s);
    return r;
}

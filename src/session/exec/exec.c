/* SPDX-License-Identifier: Apache-2.0 */

/* Runs one piece of code in a session, from the frame `exec` to the frame `done`. One poll()
 * covers the channel, the output, the spawner's events, the caller and the next deadline.
 *
 * stop.c stops the code, report.c fills in the result. A frame that is invalid or out of turn
 * ends the session: then user code has written to the channel. */

#include "session/exec/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "session/host.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOREIGN_WORDS "something wrote to the interpreter's channel to the server"

enum {
    WORD_MS = 10000,   /* for an event of the spawner; generous, for a very busy machine */
    SETTLED_MS = 5000, /* for the frame `settled`, between two execs */
    /* Bytes read after `done`; a background process may print without end. */
    DRAIN_MAX = 4 << 20,
    /* Bytes. Code is stopped when it has printed more than this, and more than four times the
     * output that is kept. */
    OUTPUT_MAX = 64 << 20,
    STARVED_MS = 50, /* pause before the channel is read again, when memory was short */
};

void exec_spec_done(struct exec_spec *spec)
{
    free(spec->code);
    free(spec->stdin_data);
    json_decref(spec->tools);
    *spec = (struct exec_spec){0};
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
        exec_on_usage(e, &event);
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
        exec_stop(e, CAUSE_OUTPUT);
}

/* Reads once. False when there is nothing to read now. */
static bool read_stream(struct exec *e, enum run_stream stream)
{
    bool is_out = stream == STREAM_STDOUT;
    ssize_t n = read(is_out ? e->s->box.out_fd : e->s->box.err_fd, e->chunk, EXEC_CHUNK);
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
    ssize_t n = install_read(e->s, e->chunk, EXEC_CHUNK);
    if (n > 0)
        take_output(e, STREAM_STDERR, (size_t)n);
}

/* Reads what the code printed before `done`. */
static void drain(struct exec *e)
{
    for (size_t i = 0; i < DRAIN_MAX / EXEC_CHUNK && read_stream(e, STREAM_STDOUT); i++)
        ;
    for (size_t i = 0; i < DRAIN_MAX / EXEC_CHUNK && read_stream(e, STREAM_STDERR); i++)
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

static void lose_for_protocol(struct exec *e, const char *why)
{
    exec_end_interpreter(e);
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
        exec_interrupt(e);
    if (session_must_end(s))
        exec_stop(e, CAUSE_END);
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

/* Acts on what poll() has found. */
static void handle(struct exec *e, const struct pollfd fds[WATCH_COUNT])
{
    struct session *s = e->s;
    if (fds[WATCH_OUT].revents)
        (void)read_stream(e, STREAM_STDOUT);
    if (fds[WATCH_ERR].revents)
        (void)read_stream(e, STREAM_STDERR);
    if (fds[WATCH_WAKE].revents)
        on_wake(e);
    if (fds[WATCH_CANCEL].revents)
        exec_stop(e, CAUSE_CANCEL);
    if (fds[WATCH_NETWORK].revents)
        exec_tell_attempts(e);
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

static void poll_once(struct exec *e)
{
    struct session *s = e->s;
    uint64_t next_ms = exec_check_deadlines(e);
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
        wait_ms = wait_ms < STARVED_MS ? wait_ms : STARVED_MS;
    e->is_starved = false;
    if (poll(fds, WATCH_COUNT, wait_ms < 60000 ? (int)wait_ms : 60000) >= 0)
        handle(e, fds);
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
    exec_ask_usage(e, is_last);
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
    exec_report(e);
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

/* The result for the caller of an exec; `sent` is 0, or the error of sending the code. */
static int outcome(const struct exec *e, int sent, struct err *err)
{
    if (e->is_failure)
        return lost_error(e->s, err);
    if (sent == -ENOMEM)
        return state_full(err);
    if (sent == -EMSGSIZE)
        return err_set(err, ERR_TOO_LARGE, EMSGSIZE,
            "code and stdin together are too large for one exec; upload a part as a file");
    return 0;
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
    r = outcome(e, r, err);
    free(e);
    session_give(s);
    return r;
}

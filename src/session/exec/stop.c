/* SPDX-License-Identifier: Apache-2.0 */

/* When an exec is stopped, and how: at its timeout, at its CPU time, after too much output,
 * when its caller leaves or its session ends. Time that the code waits for an approval, or for
 * packages, is not its own and moves the timeout.
 *
 * Code that must stop is interrupted first. An interpreter that then sends `done` keeps its
 * state. One that does not within the grace period is killed, and the session is dead. */

#include "session/exec/internal.h"

#include "approval/approval.h"
#include "base/clock.h"
#include "state/state.h"

enum {
    GRACE_MS = 2000,  /* from the interrupt to the kill */
    CPU_STEP_MS = 2,  /* shortest time between two questions about CPU time */
    PAUSED_MS = 1000, /* between two looks at an exec that waits for an approval */
};

const struct exec_cause_row exec_causes[] = {
    [CAUSE_WALL] = {RUN_TIME_LIMIT, HIT_WALL, "time_limit", "stopped at its timeout"},
    [CAUSE_CPU] = {RUN_TIME_LIMIT, HIT_CPU, "time_limit", "stopped at its CPU time limit"},
    [CAUSE_OUTPUT] = {RUN_OUTPUT_LIMIT, HIT_OUTPUT, "output_limit",
        "stopped because it printed too much"},
    [CAUSE_CANCEL] = {RUN_CANCELLED, 0, "cancelled", "stopped because its caller left"},
    [CAUSE_END] = {RUN_CANCELLED, 0, "deleted", "stopped because the session was ended"},
};

/* Linux merges pending signals of one kind. So wait until the last one is confirmed before the
 * next one is sent. */
void exec_interrupt(struct exec *e)
{
    if (!e->is_interrupting)
        session_box_command(&e->s->box, COMMAND_INTERRUPT);
    e->is_interrupting = e->was_interrupted = true;
}

void exec_stop(struct exec *e, enum exec_cause cause)
{
    if (e->cause)
        return;
    e->cause = cause;
    install_cancel(e->s);
    bool is_gentle = cause != CAUSE_END && !e->spec->preview;
    e->grace_ms = clock_ms() + (is_gentle ? GRACE_MS : 0);
    if (is_gentle)
        exec_interrupt(e);
}

void exec_ask_usage(struct exec *e, bool is_last)
{
    struct session *s = e->s;
    (void)pthread_mutex_lock(&s->lock); /* terminals may open or close on other threads */
    session_box_ask_usage(&s->box, is_last && !s->terminals && !e->was_interrupted);
    (void)pthread_mutex_unlock(&s->lock);
    e->usages++;
}

uint64_t exec_used_cpu_ns(const struct exec *e)
{
    return e->usage.cpu_ns > e->base_cpu_ns ? e->usage.cpu_ns - e->base_cpu_ns : 0;
}

/* Sets the next check to the earliest time at which the CPU limit can be reached. */
static void plan_cpu_check(struct exec *e)
{
    const struct run_limits *limits = &e->s->spec.limits;
    if (!e->s->names_cpu || e->cause)
        return;
    uint64_t used_ms = exec_used_cpu_ns(e) / 1000000;
    if (used_ms >= limits->cpu_ms) {
        exec_stop(e, CAUSE_CPU);
        return;
    }
    uint64_t wait_ms = (limits->cpu_ms - used_ms) * 1000 / limits->cpu_milli;
    e->cpu_check_ms = clock_ms() + (wait_ms > CPU_STEP_MS ? wait_ms : CPU_STEP_MS);
}

void exec_on_usage(struct exec *e, const struct spawn_event *event)
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

void exec_end_interpreter(struct exec *e)
{
    session_stop_interpreter(e->s);
    e->usages = 0;
    e->is_interrupting = false;
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

/* Sees to it that code which was stopped ends. Returns the time to look again. */
static uint64_t follow_stop(struct exec *e, uint64_t now)
{
    bool is_preview = e->spec->preview;
    /* The interpreter may lose a signal, or the code may catch one: send a second. */
    if (e->cause != CAUSE_END && !e->is_repeated && !is_preview &&
        now + GRACE_MS / 2 >= e->grace_ms) {
        e->is_repeated = true;
        exec_interrupt(e);
    }
    if (now < e->grace_ms)
        return e->is_repeated ? e->grace_ms : e->grace_ms - GRACE_MS / 2;
    if (is_preview && e->cause != CAUSE_CANCEL) /* the files of a preview end with it */
        exec_take_changes(e);
    exec_end_interpreter(e);
    session_lose(e->s, exec_causes[e->cause].reason,
        "the code did not stop when it was interrupted, so the interpreter was ended");
    e->is_lost = true;
    return now;
}

uint64_t exec_check_deadlines(struct exec *e)
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
        exec_stop(e, CAUSE_WALL);
    if (!e->cause && now >= e->cpu_check_ms) {
        e->cpu_check_ms = UINT64_MAX;
        exec_ask_usage(e, false);
    }
    if (e->cause)
        return follow_stop(e, now);
    if (is_paused)
        wall_ms = now + PAUSED_MS;
    return smaller(smaller(wall_ms, e->cpu_check_ms), tools_ms);
}

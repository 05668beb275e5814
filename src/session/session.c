/* SPDX-License-Identifier: Apache-2.0 */

/* See session.h. The list of sessions, how they live and how they end; exec/exec.c runs code in
 * them. The list is scanned: there are hundreds of sessions, not millions.
 *
 * No thread waits on idle sessions. The tick, and every caller that looks at a session, checks
 * the spawner's socket to see whether the interpreter still lives. */

#include "session/backend.h"
#include "session/host.h"

#include "approval/shell_cache.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "state/network.h"
#include "state/secrets.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STOP_MS = 10000,  /* for EVENT_EXITED after COMMAND_STOP */
    ASK_MS = 10000,   /* between two questions about the CPU time of background processes */
    DELETE_MS = 2000, /* for EVENT_ENDED after COMMAND_KILL */
    DRAIN_BYTES = 64 << 10, /* of each stream, in one session_discard_output() */
};

struct sessions *sessions_new(struct state *state)
{
    struct sessions *all = xcalloc(1, sizeof(*all));
    all->state = state;
    all->trees = shell_cache_new();
    (void)pthread_mutex_init(&all->lock, NULL);
    host_parse_check(state);
    return all;
}

void sessions_set_builder(struct sessions *all, session_builder *build)
{
    all->build = build;
}

static void session_free(struct session *s)
{
    session_drop_box(s);
    channel_done(&s->channel);
    purse_close(&s->purse);
    close_fd(&s->wake_fd);
    strv_done(&s->env);
    run_image_free(s->spec.image);
    session_network_unref(s->network);
    free(s->cwd);
    json_decref(s->approvals);
    json_decref(s->past);
    json_decref(s->host_exports);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_mutex_destroy(&s->cause_lock);
    (void)pthread_cond_destroy(&s->changed);
    free(s);
}

static void unref_locked(struct session *s)
{
    if (--s->refs == 0)
        session_free(s);
}

struct session *session_ref(struct session *s)
{
    (void)pthread_mutex_lock(&s->all->lock);
    s->refs++;
    (void)pthread_mutex_unlock(&s->all->lock);
    return s;
}

void session_unref(struct session *s)
{
    if (!s)
        return;
    struct sessions *all = s->all;
    (void)pthread_mutex_lock(&all->lock);
    unref_locked(s);
    (void)pthread_mutex_unlock(&all->lock);
}

void session_unlist(struct sessions *all, struct session *s)
{
    struct session **at = &all->first;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at) {
        *at = s->next;
        unref_locked(s);
    }
}

void sessions_free(struct sessions *all)
{
    if (!all)
        return;
    while (all->first)
        session_unlist(all, all->first);
    shell_cache_free(all->trees);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

void session_wake(struct session *s)
{
    const uint64_t one = 1;
    ssize_t n = write(s->wake_fd, &one, sizeof(one));
    (void)n; /* fails only when it is readable already */
}

void sessions_stop(struct sessions *all)
{
    (void)pthread_mutex_lock(&all->lock);
    all->is_stopping = true;
    for (struct session *s = all->first; s; s = s->next)
        session_wake(s);
    (void)pthread_mutex_unlock(&all->lock);
}

bool session_must_end(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool must = s->is_deleted || s->is_over || s->all->is_stopping;
    (void)pthread_mutex_unlock(&s->lock);
    return must;
}

void session_drop_box(struct session *s)
{
    const uint64_t one = 1;
    session_box_close(&s->box);
    if (s->install_fd >= 0 && write(s->install_fd, &one, sizeof(one)) < 0)
        s->install_fd = -1; /* a full eventfd means that the build was woken before */
    close_fd(&s->watcher.fd);
    s->charged_ns = 0;
    s->is_measured = false;
    s->has_interpreter = false;
    s->is_resting = false;
    if (s->share) { /* the share gives the memory back when the last copy is gone */
        session_unshare(s->all, s->share);
        s->promised.of[BUDGET_MEMORY] = s->promised.of[BUDGET_SESSION_MEMORY] = 0;
    }
    if (s->promised.of[BUDGET_SESSIONS])
        admit_give_back(s->all->state->admit, s->owner_index, &s->promised);
    s->share = NULL;
    s->promised = (struct admit_need){0};
}

void session_measure(struct session *s, const struct spawn_event *usage)
{
    s->seen_cpu_ns = usage->cpu_ns;
    s->seen_memory = usage->memory_bytes;
    s->is_measured = true;
}

void session_charge(struct session *s, uint64_t cpu_ns)
{
    if (cpu_ns > s->charged_ns) {
        admit_charge(
            s->all->state->admit, s->owner_index, (double)(cpu_ns - s->charged_ns) / 1e6);
        s->charged_ns = cpu_ns;
    }
}

void session_lose(struct session *s, const char *reason, const char *fmt, ...)
{
    va_list args;
    (void)pthread_mutex_lock(&s->lock);
    s->has_interpreter = false;
    s->reason = reason;
    va_start(args, fmt);
    (void)vsnprintf(s->message, sizeof(s->message), fmt, args);
    va_end(args);
    (void)pthread_mutex_unlock(&s->lock);
    log_event(LOG_INFO, "session lost", "session", s->id, "reason", reason, (char *)NULL);
}

/* Sets reason and message from an event. The caller holds the lock or the session. */
static void note_end(struct session *s, const struct spawn_event *event)
{
    s->has_interpreter = false;
    if (event->kind == EVENT_EXITED && WIFEXITED(event->wait_status)) {
        s->reason = "exited";
        (void)snprintf(s->message, sizeof(s->message), "the interpreter ended with status %d",
            WEXITSTATUS(event->wait_status));
    } else if (event->kind == EVENT_EXITED) {
        s->reason = "signaled";
        (void)snprintf(s->message, sizeof(s->message), "the interpreter was ended by %s",
            run_signal_name(WTERMSIG(event->wait_status)));
    } else if (s->spec.place) {
        s->reason = "lost";
        session_backend_end(s);
    } else if (event->kind == EVENT_ENDED && event->flags & ENDED_OOM) {
        s->reason = "memory_limit";
        (void)snprintf(s->message, sizeof(s->message),
            "memory limit of %llu MiB reached; the files, which live in memory, are gone too",
            (unsigned long long)s->spec.limits.memory_mb);
    } else if (event->kind == EVENT_ENDED && s->is_fork) {
        s->reason = "exited";
        (void)snprintf(s->message, sizeof(s->message),
            "the interpreter of this fork ended, and its files went with it");
    } else {
        s->reason = "box_lost";
        (void)snprintf(s->message, sizeof(s->message), "the box of the session died");
    }
    s->is_resting = event->kind == EVENT_EXITED;
    if (!s->is_resting)
        session_drop_box(s);
}

void session_note_end(struct session *s, const struct spawn_event *event)
{
    (void)pthread_mutex_lock(&s->lock);
    note_end(s, event);
    (void)pthread_mutex_unlock(&s->lock);
    log_event(LOG_INFO, "session lost", "session", s->id, "reason", s->reason, (char *)NULL);
}

void session_discard_output(const struct session *s)
{
    char bytes[4096];
    const int fds[] = {s->box.out_fd, s->box.err_fd};
    for (unsigned i = 0; i < 2; i++) {
        for (size_t done = 0; fds[i] >= 0 && done < DRAIN_BYTES;) {
            ssize_t n = read(fds[i], bytes, sizeof(bytes));
            if (n <= 0)
                break;
            done += (size_t)n;
        }
    }
}

int session_event(struct session *s, struct spawn_event *ret)
{
    struct place_event event;
    int r;
    while ((r = session_box_event(&s->box, &event)) == 1 &&
           (event.event.kind == EVENT_NETWORK || event.event.kind == EVENT_PLACE)) {
        if (event.event.kind == EVENT_NETWORK)
            session_network_answered(s->network, &event.event);
        else
            session_backend_take(s, &event);
    }
    if (r == 1 && event.event.kind == EVENT_FAILED)
        session_backend_take(s, &event);
    if (r == 1)
        *ret = event.event;
    return r;
}

int session_set_network(struct session *s, struct network_policy *policy, struct err *err)
{
    (void)pthread_mutex_lock(&s->lock);
    struct session_network *network = session_network_ref(s->network);
    (void)pthread_mutex_unlock(&s->lock);
    cleanup_free struct network_policy *old = session_network_policy(network);
    session_network_unref(network);
    int r = state_secrets_keep(s->all->state, old ? old->secrets : 0, &policy, err);
    if (r == 0)
        r = state_network_check(s->all->state, policy, "network", err);
    if (r == 0) {
        (void)pthread_mutex_lock(&s->lock);
        r = session_reach(s, true, err);
        (void)pthread_mutex_unlock(&s->lock);
    }
    if (r < 0) {
        free(policy);
        return r;
    }
    return session_network_apply(s, false, policy, err);
}

void session_refresh(struct session *s)
{
    struct spawn_event event = {.kind = EVENT_FAILED};
    if ((s->state != SESSION_IDLE && s->state != SESSION_DEAD) || s->box.socket < 0)
        return;
    int r;
    while ((r = session_event(s, &event)) == 1) {
        if (event.kind == EVENT_USAGE) {
            session_measure(s, &event);
            session_charge(s, event.cpu_ns);
        }
        if (event.kind == EVENT_EXITED || event.kind == EVENT_ENDED)
            break;
    }
    struct pollfd channel = {.fd = s->box.channel_fd, .events = POLLIN};
    bool is_speaking = s->state == SESSION_IDLE && poll(&channel, 1, 0) == 1;
    if (r < 0)
        event.kind = EVENT_FAILED;
    if (r != 0 && s->state == SESSION_IDLE) {
        note_end(s, &event);
        s->state = SESSION_DEAD;
    } else if (r != 0 && event.kind != EVENT_EXITED) {
        session_drop_box(s);
    } else if (r != 0) {
        s->is_resting = true;
    } else if (r == 0 && is_speaking) {
        /* End of file: the spawner's event will follow, so wait for it. A byte: user code wrote
         * to the channel. */
        char byte;
        if (recv(s->box.channel_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            return;
        session_box_command(&s->box, COMMAND_STOP);
        s->has_interpreter = false;
        s->state = SESSION_DEAD;
        s->reason = "protocol";
        (void)snprintf(s->message, sizeof(s->message),
            "something wrote to the interpreter's channel to the server");
    }
}

bool session_is_lost(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool is_lost = s->state == SESSION_DEAD || s->state == SESSION_EXPIRED;
    (void)pthread_mutex_unlock(&s->lock);
    return is_lost;
}

void session_stop_interpreter(struct session *s)
{
    struct spawn_event event = {0};
    uint64_t until_ms = clock_ms() + STOP_MS;
    int r = 0;
    session_box_command(&s->box, COMMAND_STOP);
    while (r >= 0 && event.kind != EVENT_EXITED && event.kind != EVENT_ENDED) {
        struct pollfd ready = {.fd = s->box.socket, .events = POLLIN};
        uint64_t now = clock_ms();
        if (now >= until_ms || poll(&ready, 1, (int)(until_ms - now)) < 0)
            r = -ETIMEDOUT;
        else
            r = session_event(s, &event);
    }
    if (event.kind == EVENT_ENDED)
        session_charge(s, event.cpu_ns);
    (void)pthread_mutex_lock(&s->lock);
    s->has_interpreter = false;
    s->is_resting = event.kind == EVENT_EXITED;
    if (!s->is_resting)
        session_drop_box(s);
    (void)pthread_mutex_unlock(&s->lock);
}

static bool is_owner(const struct session *s, const char *owner)
{
    return str_eq(s->owner, owner);
}

/* The list's lock is held. The caller owns a reference. */
static struct session *find_listed(struct sessions *all, const char *id, const char *owner)
{
    struct session *s = all->first;
    while (s && !(str_eq(s->id, id) && is_owner(s, owner) && !session_is_hidden(s)))
        s = s->next;
    if (s)
        s->refs++;
    return s;
}

int session_not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT,
        "session %.64s not found; it may have expired or been deleted", id);
}

struct session *session_find(struct sessions *all, const char *id, int owner)
{
    const char *name = state_owner_name(all->state, owner);
    (void)pthread_mutex_lock(&all->lock);
    struct session *s = find_listed(all, id, name);
    (void)pthread_mutex_unlock(&all->lock);
    struct session *past = s ? NULL : session_recall(all, id, owner);
    if (!past)
        return s;
    (void)pthread_mutex_lock(&all->lock);
    s = find_listed(all, id, name); /* another thread may have recalled it meanwhile */
    if (s) {
        past->refs = 1;
        unref_locked(past);
    } else {
        past->next = all->first;
        all->first = s = past;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return s;
}

const char *session_id(const struct session *s)
{
    return s->id;
}

const char *session_language(const struct session *s)
{
    return s->spec.runtime->name;
}

unsigned sessions_count(struct sessions *all)
{
    unsigned count = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first; s; s = s->next) {
        (void)pthread_mutex_lock(&s->lock);
        count += s->promised.of[BUDGET_SESSIONS] > 0;
        (void)pthread_mutex_unlock(&s->lock);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

/* Kills the box and waits for EVENT_ENDED. */
static void await_end(struct session *s)
{
    struct spawn_event event = {0};
    uint64_t until_ms = clock_ms() + DELETE_MS;
    session_box_command(&s->box, COMMAND_KILL);
    for (;;) {
        struct pollfd ready = {.fd = s->box.socket, .events = POLLIN};
        uint64_t now = clock_ms();
        if (s->box.socket < 0 || now >= until_ms ||
            poll(&ready, 1, (int)(until_ms - now)) < 1 || session_event(s, &event) < 0 ||
            event.kind == EVENT_ENDED)
            break;
    }
    if (event.kind == EVENT_ENDED)
        session_charge(s, event.cpu_ns);
}

void session_end_held(struct session *s, const char *reason, const char *message)
{
    await_end(s);
    (void)pthread_mutex_lock(&s->lock);
    session_drop_box(s);
    s->state = SESSION_EXPIRED;
    s->used_ms = clock_ms();
    s->reason = reason;
    (void)snprintf(s->message, sizeof(s->message), "%s", message);
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

void session_delete(struct session *s)
{
    struct sessions *all = s->all;
    (void)pthread_mutex_lock(&all->lock);
    session_unlist(all, s);
    (void)pthread_mutex_unlock(&all->lock);
    (void)pthread_mutex_lock(&s->lock);
    /* The caller has a reference, so the one of the list was not the last.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    s->is_deleted = true;
    session_wake(s);
    while (s->state == SESSION_STARTING || s->state == SESSION_BUSY)
        (void)session_nap(s, -1);
    await_end(s);
    session_drop_box(s);
    s->state = SESSION_EXPIRED;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    session_forget(s); /* no holder is left that could store its record again */
    session_drop_checkpoints(s);
}

int session_interrupt(struct session *s, struct err *err)
{
    int r = 0;
    (void)pthread_mutex_lock(&s->lock);
    if (s->state == SESSION_BUSY) {
        s->interrupts++;
        session_wake(s);
    } else {
        r = err_set(
            err, ERR_CONFLICT, ESRCH, "the session runs nothing that could be interrupted");
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

/* Whether a checkpoint's session has ended or is not listed any more. The list's lock is held.
 */
static bool is_orphan(const struct sessions *all, const struct session *s)
{
    struct session *at = all->first;
    while (at && !str_eq(at->id, s->origin))
        at = at->next;
    if (!at)
        return true;
    (void)pthread_mutex_lock(&at->lock);
    bool is_over = at->state == SESSION_EXPIRED;
    (void)pthread_mutex_unlock(&at->lock);
    return is_over;
}

/* Handles expiry and death of one session. True when it can be removed from the list. */
static bool tick_one(struct sessions *all, struct session *s, uint64_t keep_ms)
{
    bool is_checkpoint = s->checkpoint[0];
    bool is_alone = is_checkpoint && is_orphan(all, s);
    (void)pthread_mutex_lock(&s->lock);
    /* Read it after taking the lock, or used_ms could be later than now. */
    uint64_t now = clock_ms();
    session_refresh(s);
    bool is_late = now >= s->end_ms;
    bool is_unused =
        s->state != SESSION_BUSY && s->install_fd < 0 && now - s->used_ms >= s->idle_ms;
    if (is_checkpoint)
        is_unused = is_alone;
    if (s->state == SESSION_IDLE) {
        session_discard_output(s);
        if (now - s->asked_ms >= ASK_MS) {
            s->asked_ms = now;
            session_box_ask_usage(&s->box, !s->terminals && !s->transfers);
        }
    }
    if (s->state == SESSION_BUSY && is_late && !s->is_over) {
        s->is_over = true;
        session_wake(s);
    } else if (s->state == SESSION_IDLE && (is_late || is_unused)) {
        session_drop_box(s);
        s->state = SESSION_EXPIRED;
        s->used_ms = now;
        s->reason = is_late ? "lifetime" : "idle";
        (void)snprintf(s->message, sizeof(s->message), "%s",
            is_late ? "it reached its max_lifetime_s" : "it was idle for its idle_timeout_s");
        (void)pthread_cond_broadcast(&s->changed);
    } else if (s->state == SESSION_DEAD && (is_late || is_unused)) {
        session_drop_box(s);
    }
    bool is_done = (s->state == SESSION_DEAD || s->state == SESSION_EXPIRED) &&
                   s->box.socket < 0 && (is_checkpoint || now - s->used_ms >= keep_ms);
    (void)pthread_mutex_unlock(&s->lock);
    return is_done;
}

void sessions_tick(struct sessions *all)
{
    uint64_t keep_ms = all->state->config.result_ttl_s * 1000;
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first, *next; s; s = next) {
        next = s->next;
        if (tick_one(all, s, keep_ms)) {
            session_forget(s);
            session_unlist(all, s);
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
    sessions_make_room(all, 1); /* deadlines of connections wait for us */
}

/* SPDX-License-Identifier: Apache-2.0 */

/* How a session starts, and starts again after a reset: reserve memory, get a box, wait until
 * its interpreter is ready. */

#include "session/backend.h"
#include "session/host.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/utf8.h"
#include "run/decode.h"
#include "state/effects.h"
#include "state/network.h"
#include "state/secrets.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    START_MS = 30000,     /* for EVENT_STARTED and the frame `ready` */
    PLACE_MS = 90000,     /* the same for a place, which gives up by itself earlier */
    WORD_MS = 1000,       /* for the spawner's event after the channel has closed */
    EXEC_WALL_MS = 30000, /* of an exec when neither the session nor the exec names one */
    DEAD_MAX = 64,        /* dead and expired sessions of one key that stay listed */
    CWD_MAX = 4096,       /* bytes; PATH_MAX of Linux */
};

void session_set_cwd(struct session *s, const json_t *frame)
{
    const json_t *cwd = json_object_get(frame, "cwd");
    if (!json_is_string(cwd) || json_string_length(cwd) > CWD_MAX)
        return;
    char *copy = xstrndup(json_string_value(cwd), json_string_length(cwd));
    (void)pthread_mutex_lock(&s->lock);
    free(s->cwd);
    s->cwd = copy;
    (void)pthread_mutex_unlock(&s->lock);
}

/* Copies the last line that the interpreter wrote to stderr, or "". */
static void last_words(const struct session *s, char *out, size_t size)
{
    char text[4096];
    ssize_t n = read(s->box.err_fd, text, sizeof(text) - 1);
    size_t len = n > 0 ? (size_t)n : 0;
    while (len && text[len - 1] == '\n')
        len--;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    (void)snprintf(out, size, "%.*s", (int)utf8_floor(line, strnlen(line, size - 1)), line);
}

/* Explains why the interpreter never became ready. It is the caller's fault (limits, env)
 * unless the caller set nothing unusual. */
static int no_interpreter(struct session *s, const struct spawn_event *event, struct err *err)
{
    const struct runtime *rt = s->spec.runtime;
    char line[320]; /* all that an engine says: its reason comes last */
    last_words(s, line, sizeof(line));
    if (s->is_fork)
        return err_set(err, ERR_CONFLICT, EBUSY,
            "the session could not be copied: cannot %s: %s%s%s; it is unharmed",
            spawner_step_text(event->kind == EVENT_FAILED ? event->step : STEP_COPY_CHECK),
            strerror(event->kind == EVENT_FAILED ? -event->error : ECHILD), line[0] ? ": " : "",
            line);
    if (s->spec.place)
        return session_backend_failed(s, event, line, err);
    if (event->kind == EVENT_FAILED)
        return err_set(err,
            event->step == STEP_SPAWNER ? ERR_UNAVAILABLE : err_code_of(-event->error),
            -event->error, "cannot %s: %s; the session did not start",
            spawner_step_text(event->step), strerror(-event->error));
    if (event->kind == EVENT_ENDED && event->flags & ENDED_OOM)
        return err_field(err, "limits.memory_mb",
            "%llu MiB are too little for the interpreter of %s",
            (unsigned long long)s->spec.limits.memory_mb, rt->name);
    if (event->flags & ENDED_CROWDED)
        return err_set(err, ERR_UNAVAILABLE, EAGAIN,
            "the interpreter of %s was refused a process because all programs together have as "
            "many as the setting processes_total allows; try again later",
            rt->name);
    (void)err_field(err, "limits",
        "the interpreter of %s ended before it was ready; limits or env may not be fit for it: "
        "%s",
        rt->name, line[0] ? line : "it printed nothing");
    if (s->is_plain)
        err->code = ERR_INTERNAL;
    return -ECHILD;
}

/* Handles an event while the box starts: 1 when it has started. */
static int on_event(struct session *s, struct err *err)
{
    struct spawn_event event = {.kind = EVENT_FAILED, .step = STEP_SPAWNER, .error = -EPIPE};
    int r = session_event(s, &event);
    if (r == 0)
        return 0;
    if (r == 1 && event.kind == EVENT_STARTED) {
        s->is_warm = !s->spec.place && event.flags & STARTED_WARM;
        s->place_bits = event.flags;
        return 1;
    }
    return r == 1 && event.kind == EVENT_USAGE ? 0 : no_interpreter(s, &event, err);
}

/* Takes the frame `ready`: 1 when it has come. What stands behind it was said unasked, and
 * would be taken as the answer to the first exec. */
static int on_channel(struct session *s, struct err *err)
{
    struct channel_frame frame;
    json_t *ready = NULL;
    struct err ignored = {0};
    int n = channel_read(&s->channel);
    if (n == -ENOMEM)
        return state_full(err);
    if (n < 0)
        return 0; /* the spawner's event says why */
    int r = channel_next(&s->channel, &frame);
    if (r == 1 && (frame.kind != FRAME_READY || !channel_is_clean(&s->channel) ||
                      json_run_parse(frame.data, frame.len, &ready, &ignored) < 0))
        r = -EBADMSG;
    if (r == 1)
        session_set_cwd(s, ready);
    json_decref(ready);
    return r < 0 ? err_set(err, ERR_INTERNAL, EPROTO,
                       "the interpreter of %s sent an invalid frame", s->spec.runtime->name)
                 : r;
}

uint64_t session_patience_ms(const struct session *s, uint64_t ms)
{
    uint64_t milli = s->spec.limits.cpu_milli;
    return milli && milli < 1000 ? ms * 1000 / milli : ms;
}

int session_wait_ready(struct session *s, int cancel_fd, struct err *err)
{
    uint64_t patience_ms = session_patience_ms(s, s->spec.place ? PLACE_MS : START_MS) +
                           (s->spec.place ? place_open_ms(s->spec.place) : 0);
    uint64_t until_ms = clock_ms() + patience_ms;
    channel_done(&s->channel);
    channel_init(&s->channel, s->box.channel_fd, &s->purse.counts);
    bool is_started = false;
    bool is_ready = false;
    while (!is_started || !is_ready) {
        struct pollfd fds[] = {{s->box.socket, POLLIN, 0},
            {is_ready ? -1 : s->box.channel_fd, POLLIN, 0}, {s->wake_fd, POLLIN, 0},
            {cancel_fd, POLLIN, 0}};
        uint64_t now = clock_ms();
        if (now >= until_ms)
            return err_set(err, ERR_UNAVAILABLE, ETIMEDOUT,
                "the session was not ready after %llu s; the machine is overloaded",
                (unsigned long long)patience_ms / 1000);
        if (poll(fds, 4, (int)(until_ms - now)) < 0)
            continue;
        int r = fds[1].revents ? on_channel(s, err) : 0;
        is_ready = is_ready || r == 1;
        if (r >= 0 && fds[0].revents) {
            r = on_event(s, err);
            is_started = is_started || r == 1;
            if (r == 1 && until_ms > clock_ms() + START_MS)
                until_ms = clock_ms() + START_MS; /* the interpreter of a place */
        }
        if (r < 0)
            return r;
        if (session_must_end(s))
            return err_set(err, ERR_CONFLICT, ECANCELED, "the session was deleted");
        if (fds[3].revents)
            return err_set(err, ERR_CONFLICT, ECANCELED,
                "the client disconnected before the session could answer");
        if (fds[1].revents & (POLLHUP | POLLERR)) /* the spawner's event is on its way */
            (void)poll(fds, 1, WORD_MS);
    }
    session_box_ask_usage(&s->box, true);
    return 0;
}

/* Waits for the interpreter. `r` is the result of starting the box. Drops the box on error. */
static int await_interpreter(struct session *s, int r, int cancel_fd, struct err *err)
{
    if (r == 0)
        r = session_wait_ready(s, cancel_fd, err);
    (void)pthread_mutex_lock(&s->lock);
    s->has_interpreter = r == 0;
    if (r < 0)
        session_drop_box(s);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

/* Reserves memory, opens a box and waits for its interpreter. The caller holds the session. */
static int open_box(struct session *s, int cancel_fd, struct err *err)
{
    struct state *state = s->all->state;
    struct admit_need promised;
    struct session_box box;
    cleanup_close int network_fd = -1;
    uint64_t begin_ms = clock_ms();
    session_box_init(&box);
    int r = session_reserve(s, &promised, err);
    if (r < 0)
        return r;
    r = s->spec.place ? 0 : state_wait_for_spawner(state, cancel_fd, err);
    if (r == 0)
        r = session_network_open(s, &network_fd, err);
    if (r == 0)
        r = session_box_open(state->engine, &s->spec, network_fd, &box, err);
    (void)pthread_mutex_lock(&s->lock);
    s->promised = promised;
    s->box = box;
    (void)pthread_mutex_unlock(&s->lock);
    session_backend_begin(s);
    r = await_interpreter(s, r, cancel_fd, err);
    session_backend_note(s, r, clock_ms() - begin_ms, err);
    return r;
}

struct session *session_new(struct sessions *all, struct session_spec *spec, int owner)
{
    const struct config *config = &all->state->config;
    struct session *s = xcalloc(1, sizeof(*s));
    s->all = all;
    s->refs = 2; /* the list's and the caller's */
    id_make("ses_", s->id);
    (void)snprintf(s->owner, sizeof(s->owner), "%s", state_owner_name(all->state, owner));
    s->owner_index = owner;
    memcpy(s->name, spec->name, sizeof(s->name));
    s->env = spec->env;
    spec->env = (struct strv){0};
    s->spec = (struct session_box_spec){.runtime = spec->runtime,
        .env = &s->env,
        .owner = (uint32_t)(owner + 1),
        .limits = spec->limits,
        .mount_count = spec->mount_count};
    memcpy(s->spec.mounts, spec->mounts, sizeof(s->spec.mounts));
    if (spec->network && spec->network->secrets)
        s->spec.trust = &all->state->trust;
    s->network = session_network_new(take_ptr(spec->network));
    s->spec.image = take_ptr(spec->image);
    s->spec.place = spec->place;
    s->spec.place_number = spec->place_number;
    s->spec.place_request.limits = spec->place_limits;
    (void)snprintf(s->spec.place_request.owner, PLACE_ID, "%s", s->owner);
    (void)snprintf(s->spec.place_request.session, PLACE_ID, "%s", s->id);
    s->spec.places_fd = all->state->places_fd;
    s->created_s = (int64_t)time(NULL);
    s->idle_ms = (spec->idle_timeout_s ? spec->idle_timeout_s : config->session_idle_s) * 1000;
    s->used_ms = clock_ms();
    s->end_ms =
        s->used_ms +
        (spec->max_lifetime_s ? spec->max_lifetime_s : config->session_lifetime_s) * 1000;
    s->cwd = xstrdup("/box");
    s->state = SESSION_STARTING;
    s->reason = "";
    session_box_init(&s->box);
    s->watcher.fd = -1;
    s->install_fd = -1;
    purse_open(&s->purse, all->state->ledger, owner);
    channel_init(&s->channel, -1, &s->purse.counts);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->cause_lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    return s;
}

/* Only DEAD_MAX dead sessions of a key stay in the list. */
void session_enlist(struct sessions *all, struct session *s)
{
    unsigned dead = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *at = all->first, *next; at; at = next) {
        next = at->next;
        (void)pthread_mutex_lock(&at->lock);
        bool is_own = str_eq(at->owner, s->owner);
        bool is_live = at->promised.of[BUDGET_SESSIONS] || at->state == SESSION_STARTING;
        (void)pthread_mutex_unlock(&at->lock);
        dead += !is_live && is_own;
        if (!is_live && is_own && dead > DEAD_MAX) { /* the newest come first in the list */
            session_forget(at);
            session_unlist(all, at);
        }
    }
    s->next = all->first;
    all->first = s;
    (void)pthread_mutex_unlock(&all->lock);
}

void session_spec_done(struct session_spec *spec)
{
    strv_done(&spec->env);
    strv_done(&spec->secrets);
    free(spec->network);
    spec->network = NULL;
    free(spec->image_name);
    spec->image_name = NULL;
    run_image_free(spec->image);
    spec->image = NULL;
}

static int check_spec(
    struct sessions *all, struct session_spec *spec, int owner, struct err *err)
{
    const struct config *config = &all->state->config;
    const struct runtime *rt = spec->runtime;
    if (!rt->available)
        return err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", rt->missing);
    if (!config->max_sessions)
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "this server has no sessions: its operator set max_sessions to 0");
    if (!rt->run.session.count)
        return err_field(err, "language",
            "there is no interpreter for sessions of %s; GET /v1/runtimes tells which "
            "languages have one",
            rt->name);
    if (spec->idle_timeout_s > config->session_lifetime_s)
        return err_field(err, "idle_timeout_s",
            "idle_timeout_s must be at most %llu, the setting session_lifetime_s",
            (unsigned long long)config->session_lifetime_s);
    if (spec->max_lifetime_s > config->session_lifetime_s)
        return err_field(err, "max_lifetime_s",
            "max_lifetime_s must be at most %llu, the setting session_lifetime_s",
            (unsigned long long)config->session_lifetime_s);
    int r = session_backend_check(all->state, spec, owner, err);
    if (r < 0)
        return r;
    const struct run_files *trust = NULL; /* session_new() takes it from the policy */
    const struct secrets_target to = {&spec->network, &spec->env, &trust};
    r = state_secrets_apply(all->state, owner, &spec->secrets, "secrets", &to, err);
    if (r == 0)
        r = state_network_check(all->state, spec->network, "network", err);
    if (r < 0)
        return r;
    bool names_wall = spec->limits.wall_ms || spec->limits.cpu_ms;
    limits_fill(&spec->limits, &rt->limits);
    if (!names_wall && spec->limits.wall_ms < EXEC_WALL_MS)
        spec->limits.wall_ms =
            config->maxima.wall_ms < EXEC_WALL_MS ? config->maxima.wall_ms : EXEC_WALL_MS;
    return limits_check(&spec->limits, &config->maxima, "limits.", err);
}

/* Waits until the writable mounts are approved. The session is in no list yet. */
static int approve_mounts(struct session *s, int cancel_fd, struct err *err)
{
    CLEANUP(effects_done) struct effects effects = {0};
    cleanup_free struct network_policy *policy = session_network_policy(s->network);
    const struct effects_request request = {.owner = s->owner_index,
        .session = s->id,
        .mounts = s->spec.mounts,
        .mount_count = s->spec.mount_count,
        .network = policy};
    int r = effects_ask(s->all->state, &request, &effects, err);
    if (r == 0)
        r = effects_wait(s->all->state, &effects, NULL, cancel_fd, err);
    if (r == -ECANCELED)
        (void)err_set(err, ERR_CONFLICT, ECANCELED,
            "the client disconnected before the session could answer");
    return r;
}

int session_create(struct sessions *all, struct session_spec *spec, int owner, int cancel_fd,
    struct session **ret, struct err *err)
{
    static const struct run_limits none;
    bool is_plain = spec->env.count == 0 && spec->secrets.count == 0 &&
                    memcmp(&spec->limits, &none, sizeof(none)) == 0;
    bool names_cpu = spec->limits.cpu_ms > 0;
    int r = check_spec(all, spec, owner, err);
    if (r < 0)
        return r;
    struct session *s = session_new(all, spec, owner);
    s->is_plain = is_plain;
    s->names_cpu = names_cpu;
    if (s->wake_fd < 0) {
        s->refs = 1;
        session_unref(s);
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this session; try again later");
    }
    r = approve_mounts(s, cancel_fd, err);
    if (r == 0)
        r = host_approve_env(s, cancel_fd, err);
    if (r < 0) {
        s->refs = 1;
        session_unref(s);
        return r;
    }
    session_enlist(all, s);
    r = open_box(s, cancel_fd, err);
    if (r == -ECANCELED && err->code == ERR_NONE)
        (void)err_set(err, ERR_CONFLICT, ECANCELED,
            "the client disconnected before the session could answer");
    session_give(s);
    if (r < 0) {
        session_delete(s);
        session_unref(s);
        return r;
    }
    session_remember(s);
    *ret = s;
    return 0;
}

/* Starts another interpreter in a box whose payload has ended. */
static int restart(struct session *s, int cancel_fd, struct err *err)
{
    struct session_box box = s->box;
    int r = session_box_restart(s->all->state->engine, &s->spec, &box, err);
    (void)pthread_mutex_lock(&s->lock);
    s->box = box;
    s->is_resting = false;
    (void)pthread_mutex_unlock(&s->lock);
    r = await_interpreter(s, r, cancel_fd, err);
    if (r == 0 && s->spec.image) /* the fork of a zygote does not know it */
        session_tell_packages(s);
    return r;
}

int session_reset(struct session *s, int cancel_fd, bool *ret_files_kept, struct err *err)
{
    int r = session_take(s, false, true, cancel_fd, err);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&s->lock);
    s->state = SESSION_STARTING;
    s->execution_count = 0;
    (void)pthread_mutex_unlock(&s->lock);
    if (s->box.socket >= 0 && !s->is_resting)
        session_stop_interpreter(s);
    *ret_files_kept = s->box.socket >= 0;
    r = *ret_files_kept ? restart(s, cancel_fd, err) : open_box(s, cancel_fd, err);
    if (r < 0)
        session_lose(
            s, "start_failed", "a new interpreter could not be started: %s", err->message);
    session_give(s);
    return r;
}

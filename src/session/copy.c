/* SPDX-License-Identifier: Apache-2.0 */

/* Copies live sessions (spawn/copy.h). The server asks the interpreter whether it can be
 * copied, asks the spawner for a box, and passes the interpreter the descriptors of the copy.
 * From then on the copy starts like any other session. */

#include "session/backend.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/str.h"
#include "run/decode.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* In milliseconds. ANSWER_MS waits for the answer of an interpreter that has a whole core,
 * SPAWNER_MS for the spawner's. */
enum { ANSWER_MS = 10000, SPAWNER_MS = 5000 };

void session_unshare(struct sessions *all, struct session_share *share)
{
    while (share && atomic_fetch_sub(&share->refs, 1) == 1) {
        struct session_share *origin = share->origin;
        admit_give_back(all->state->admit, share->owner, &share->promised);
        free(share);
        share = origin;
    }
}

static struct session_share *share_new(const struct session *s, struct session_share *origin)
{
    struct session_share *share = xcalloc(1, sizeof(*share));
    share->owner = s->owner_index;
    share->promised.of[BUDGET_MEMORY] = s->promised.of[BUDGET_MEMORY];
    share->promised.of[BUDGET_SESSION_MEMORY] = s->promised.of[BUDGET_SESSION_MEMORY];
    share->origin = origin;
    atomic_init(&share->refs, 1);
    return share;
}

/* A copy shares pages of memory with its original. So the copy gets a memory promise of its
 * own, and the original's promise is given back only after the copy has ended, too. */
static void share_memory(struct session *original, struct session *copy)
{
    if (!original->share)
        original->share = share_new(original, NULL);
    copy->share = share_new(copy, original->share);
    (void)atomic_fetch_add(&original->share->refs, 1);
}

/* Waits for the interpreter's frame `fork`. ret_reason is why it refuses, or "". */
static int hear(struct session *s, char *ret_reason, size_t size)
{
    struct channel_frame frame;
    struct err ignored = {0};
    json_t *answer = NULL;
    int r = channel_await(&s->channel, session_patience_ms(s, ANSWER_MS), &frame);
    if (r < 0)
        return r;
    if (frame.kind != FRAME_FORK ||
        json_run_parse(frame.data, frame.len, &answer, &ignored) < 0)
        return -EBADMSG;
    const json_t *refused = json_object_get(answer, "refused");
    if (!json_is_string(refused) && !json_is_null(refused))
        r = -EBADMSG;
    const char *text = json_string_value(refused);
    (void)snprintf(ret_reason, size, "%s", !text ? "" : text[0] ? text : "it does not say why");
    json_decref(answer);
    return r;
}

/* Asks the interpreter whether it can be copied now. If so, it waits for the descriptors. */
static int ask_interpreter(struct session *s, struct err *err)
{
    char reason[400];
    int r = channel_queue(&s->channel, "fork", NULL, 0);
    if (r == 0)
        r = hear(s, reason, sizeof(reason));
    if (r == 0 && reason[0])
        return err_set(err, ERR_CONFLICT, EBUSY, "the session cannot be copied: %s", reason);
    return r;
}

/* Explains why the spawner refused. */
static int refused(const struct spawn_event *event, struct err *err)
{
    static const struct {
        int error;
        enum err_code code;
        const char *text;
    } reasons[] = {
        {EOPNOTSUPP, ERR_UNSUPPORTED,
            "this machine cannot copy live sessions: hermes must run "
            "as root, with CAP_SYS_PTRACE, control groups v2 and Landlock ABI 6"},
        {ENOSYS, ERR_UNSUPPORTED, "live sessions can be copied on x86-64 only"},
        {EMLINK, ERR_CONFLICT,
            "too many copies lie between this session and the original; copy a session that is "
            "nearer to the original"},
        {EAGAIN, ERR_BUSY,
            "no more copies of this session and of its copies can live at one time; delete a "
            "copy that you do not need"},
    };
    int error = event->kind == EVENT_FAILED ? -event->error : EPIPE;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].error == error)
            return err_set(err, reasons[i].code, error, "%s", reasons[i].text);
    }
    return err_set(
        err, ERR_UNAVAILABLE, error, "the spawner cannot make a copy: %s", strerror(error));
}

int session_copy_start(struct session *s, struct session *copy, struct err *err)
{
    int fds[SESSION_FORK_FDS] = {-1, -1, -1, -1};
    struct spawn_event event = {.kind = EVENT_FAILED, .error = -EPIPE};
    int r = session_box_fork(&s->box, copy->is_preview, &copy->box, fds, err);
    if (r == 0 && session_box_hello(&copy->box, SPAWNER_MS, &event, &fds[3]) == 0 &&
        event.kind == EVENT_FORKING)
        r = fdpass_send(s->box.channel_fd, "f", 1, fds, SESSION_FORK_FDS);
    else if (r == 0)
        r = refused(&event, err);
    if (r < 0 && send(s->box.channel_fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        err->code = ERR_NONE;
    for (int i = 0; i < SESSION_FORK_FDS; i++)
        close_fd(&fds[i]);
    return r;
}

/* Waits until the interpreter has forked. Returns an error without setting err when it did not
 * do its part. */
static int fork_interpreter(struct session *s, struct session *copy, struct err *err)
{
    char reason[400];
    int r = session_copy_start(s, copy, err);
    if (r < 0)
        return r;
    r = hear(s, reason, sizeof(reason));
    if (r == 0 && reason[0])
        return err_set(err, ERR_CONFLICT, EBUSY, "the session cannot be copied: %s", reason);
    return r;
}

/* Makes a session with the settings of `s` and no box yet. */
static struct session *new_copy(struct session *s, const char *checkpoint, bool is_preview)
{
    struct session_spec spec = {.runtime = s->spec.runtime, .limits = s->spec.limits};
    strv_add_all(&spec.env, &s->env);
    spec.image = run_image_copy(s->spec.image);
    struct session *copy = session_new(s->all, &spec, s->owner_index);
    copy->is_preview = is_preview;
    if (!is_preview) { /* the copy shares the network namespace of the original */
        session_network_unref(copy->network);
        copy->network = session_network_ref(s->network);
    }
    copy->names_cpu = s->names_cpu;
    copy->is_plain = s->is_plain;
    copy->idle_ms = s->idle_ms;
    copy->end_ms = s->end_ms;
    copy->execution_count = s->execution_count;
    copy->is_warm = true;
    copy->is_fork = true;
    copy->has_foreign_text = s->has_foreign_text;
    memcpy(copy->origin, s->id, sizeof(copy->origin));
    (void)snprintf(copy->checkpoint, sizeof(copy->checkpoint), "%s", checkpoint);
    if (checkpoint[0]) /* names of checkpoints mean nothing to a session of its own */
        memcpy(copy->base, s->base, sizeof(copy->base));
    return copy;
}

int session_copy_new(struct session *s, const char *checkpoint, bool is_preview,
    struct session **ret, struct err *err)
{
    struct session *copy = new_copy(s, checkpoint, is_preview);
    struct admit_need promised;
    if (copy->wake_fd < 0) {
        int errnum = errno;
        copy->refs = 1;
        session_unref(copy);
        return err_set(err, ERR_UNAVAILABLE, errnum,
            "the server has no descriptor left for the copy; try again later");
    }
    session_enlist(s->all, copy);
    int r = session_reserve(copy, &promised, err);
    if (r < 0) {
        session_copy_drop(copy);
        return r;
    }
    (void)pthread_mutex_lock(&s->lock);
    copy->promised = promised;
    share_memory(s, copy);
    (void)pthread_mutex_unlock(&s->lock);
    *ret = copy;
    return 0;
}

void session_copy_drop(struct session *copy)
{
    copy->has_interpreter = false;
    session_give(copy);
    session_delete(copy);
    session_unref(copy);
}

/* The caller holds the original. The copy is in state starting. */
static int fill_copy(struct session *s, struct session *copy, int cancel_fd, struct err *err)
{
    session_box_ask_usage(&s->box, false); /* makes the box busy (spawn/shares.h) */
    int r = ask_interpreter(s, err);
    if (r == 0)
        r = fork_interpreter(s, copy, err);
    if (r < 0 && err->code == ERR_NONE) {
        session_stop_interpreter(s);
        session_lose(s, "protocol", "the interpreter sent an invalid answer");
        return err_set(err, ERR_CONFLICT, ESTALE,
            "the interpreter sent an invalid answer and was ended; its state is lost");
    }
    return r < 0 ? r : session_wait_ready(copy, cancel_fd, err);
}

int session_copy(struct session *s, const char *checkpoint, int cancel_fd, struct session **ret,
    struct err *err)
{
    struct session *copy = NULL;
    int r = session_copy_new(s, checkpoint, false, &copy, err);
    if (!copy)
        return r;
    r = fill_copy(s, copy, cancel_fd, err);
    if (r < 0) {
        session_copy_drop(copy);
        return r;
    }
    copy->has_interpreter = true;
    session_give(copy);
    if (!checkpoint[0])
        session_remember(copy);
    *ret = copy;
    return 0;
}

int session_can_fork(const struct session *s, struct err *err)
{
    if (session_backend_refuse(s, "copies and checkpoints", err) < 0)
        return -ENOSYS;
    if (s->spec.mount_count)
        return err_set(err, ERR_UNSUPPORTED, ENOSYS, "a session with mounts cannot be copied");
    if (s->spec.runtime->run.session_forks)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, ENOSYS,
        "the memory of a %s session cannot be copied; its files can be downloaded and uploaded",
        s->spec.runtime->name);
}

int session_fork(
    struct session *s, unsigned count, int cancel_fd, struct fork_result *ret, struct err *err)
{
    unsigned made = 0;
    *ret = (struct fork_result){
        .has_memory = s->spec.runtime->run.session_forks, .is_whole = true};
    int r = s->spec.mount_count || s->spec.place ? session_can_fork(s, err) : 0;
    if (r < 0 || (r = session_take(s, false, false, cancel_fd, err)) < 0)
        return r;
    while (r == 0 && made < count) {
        struct session **copy = &ret->copies[made];
        r = ret->has_memory ? session_copy(s, "", cancel_fd, copy, err)
                            : session_copy_fresh(s, cancel_fd, copy, &ret->is_whole, err);
        made += r == 0;
    }
    channel_rest(&s->channel);
    session_give(s);
    while (r < 0 && made > 0) {
        session_delete(ret->copies[--made]);
        session_unref(ret->copies[made]);
    }
    return r;
}

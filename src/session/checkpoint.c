/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints: paused copies of a session. A checkpoint is in the list of sessions and counts
 * against the same budgets, but no request can find it there. It belongs to the session that it
 * was copied from and is deleted with it. */

#include "session/internal.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Finds the checkpoint of this name, or any with NULL. The caller owns a reference. */
static struct session *find(struct session *s, const char *name)
{
    struct sessions *all = s->all;
    (void)pthread_mutex_lock(&all->lock);
    struct session *at = all->first;
    while (at && !(at->checkpoint[0] && str_eq(at->origin, s->id) &&
                     (!name || str_eq(at->checkpoint, name))))
        at = at->next;
    if (at)
        at->refs++;
    (void)pthread_mutex_unlock(&all->lock);
    return at;
}

static struct session *find_named(struct session *s, const char *name, struct err *err)
{
    struct session *found = find(s, name);
    if (!found)
        (void)err_set(err, ERR_NOT_FOUND, ENOENT,
            "checkpoint `%.64s` of session %s not found; it may have expired or been deleted",
            name, s->id);
    return found;
}

void session_drop_checkpoints(struct session *s)
{
    struct session *at;
    while (!s->checkpoint[0] && (at = find(s, NULL))) {
        session_delete(at);
        session_unref(at);
    }
}

static json_t *to_json(struct session *c)
{
    (void)pthread_mutex_lock(&c->lock);
    json_t *json = json_pack("{s:s, s:s, s:s?, s:o, s:I, s:s}", "name", c->checkpoint,
        "session", c->origin, "parent", c->base[0] ? c->base : NULL, "created_at",
        result_time_json(c->created_s), "execution_count", (json_int_t)c->execution_count,
        "cwd", c->cwd);
    (void)pthread_mutex_unlock(&c->lock);
    return json;
}

json_t *session_checkpoints(struct session *s)
{
    json_t *list = json_array();
    struct sessions *all = s->all;
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *at = all->first; at; at = at->next) {
        if (at->checkpoint[0] && str_eq(at->origin, s->id) && at->has_interpreter)
            /* The list has the newest first. */
            (void)json_array_insert_new(list, 0, to_json(at));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return list;
}

static int choose_name(struct session *s, const char *wish, char *out, struct err *err)
{
    (void)snprintf(out, CHECKPOINT_NAME_MAX + 1, "%s", wish);
    for (unsigned i = 1; !wish[0] || i == 1; i++) {
        if (!wish[0])
            (void)snprintf(out, CHECKPOINT_NAME_MAX + 1, "%u", i);
        struct session *taken = find(s, out);
        session_unref(taken);
        if (!taken)
            return 0;
    }
    return err_set(err, ERR_CONFLICT, EEXIST,
        "there is a checkpoint `%.64s` already; delete it or choose another name", wish);
}

int session_checkpoint(
    struct session *s, const char *name, int cancel_fd, json_t **ret, struct err *err)
{
    char chosen[CHECKPOINT_NAME_MAX + 1];
    struct session *copy = NULL;
    int r = session_can_fork(s, err);
    if (r < 0 || (r = session_take(s, false, false, cancel_fd, err)) < 0)
        return r;
    r = choose_name(s, name, chosen, err);
    if (r >= 0)
        r = session_copy(s, chosen, cancel_fd, &copy, err);
    if (r >= 0) /* the caller holds the session */
        (void)snprintf(s->base, sizeof(s->base), "%s", chosen);
    channel_rest(&s->channel);
    session_give(s);
    if (r < 0)
        return r;
    /* It is listed: another thread may have ended it already. */
    (void)pthread_mutex_lock(&copy->lock);
    session_box_command(&copy->box, COMMAND_PAUSE);
    (void)pthread_mutex_unlock(&copy->lock);
    *ret = to_json(copy);
    session_unref(copy);
    return 0;
}

int session_checkpoint_delete(struct session *s, const char *name, struct err *err)
{
    struct session *c = find_named(s, name, err);
    if (!c)
        return -ENOENT;
    session_delete(c);
    session_unref(c);
    return 0;
}

#define SWAP(a, b)                                                                             \
    do {                                                                                       \
        __typeof__(a) kept_ = (a);                                                             \
        (a) = (b);                                                                             \
        (b) = kept_;                                                                           \
    } while (0)

/* The buffers of a channel are counted in the purse of their own session, so they are never
 * exchanged. Both sessions are idle: nothing of a frame is in them. */
static void renew_channel(struct session *s)
{
    channel_done(&s->channel);
    channel_init(&s->channel, s->box.channel_fd, &s->purse.counts);
}

/* Gives the session the copy's box and all state that belongs to the box. The copy, which will
 * be deleted, gets the session's. The caller holds both. */
static void exchange(struct session *s, struct session *copy)
{
    (void)pthread_mutex_lock(&s->lock);
    SWAP(s->box, copy->box);
    renew_channel(s);
    renew_channel(copy);
    SWAP(s->share, copy->share);
    SWAP(s->promised, copy->promised);
    SWAP(s->charged_ns, copy->charged_ns);
    SWAP(s->has_interpreter, copy->has_interpreter);
    SWAP(s->is_resting, copy->is_resting);
    SWAP(s->is_fork, copy->is_fork);
    SWAP(s->cwd, copy->cwd);
    SWAP(s->told_pids, copy->told_pids);
    SWAP(s->network, copy->network);
    SWAP(s->spec.image, copy->spec.image);
    close_fd(&s->watcher.fd); /* belongs to the old box; opened again when needed */
    s->execution_count = copy->execution_count;
    (void)pthread_mutex_unlock(&s->lock);
}

static void note_rollback(struct session *s, const char *name)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)snprintf(s->base, sizeof(s->base), "%s", name);
    memcpy(s->rolled_back_to, s->base, sizeof(s->base));
    s->rolled_back_s = (int64_t)time(NULL);
    (void)pthread_mutex_unlock(&s->lock);
}

/* Copies a checkpoint and pauses it again. The caller holds the copy. */
static int copy_checkpoint(
    struct session *c, int cancel_fd, struct session **ret, struct err *err)
{
    int r = session_take(c, false, false, cancel_fd, err);
    if (r < 0)
        return r;
    session_box_command(&c->box, COMMAND_RESUME);
    r = session_copy(c, "", cancel_fd, ret, err);
    channel_rest(&c->channel);
    session_box_command(&c->box, COMMAND_PAUSE);
    session_give(c);
    if (r == 0 && (r = session_take(*ret, false, false, cancel_fd, err)) < 0) {
        session_delete(*ret);
        session_unref(*ret);
    }
    return r;
}

/* The session may have got another box, and with it another network, since the checkpoint was
 * made. Its present network policy stays. The caller holds both sessions. */
static int keep_network(struct session *s, struct session *copy, struct err *err)
{
    if (s->network == copy->network)
        return 0;
    return session_network_apply(copy, true, session_network_policy(s->network), err);
}

int session_rollback(struct session *s, const char *name, int cancel_fd, struct err *err)
{
    struct session *copy = NULL;
    int r = session_can_fork(s, err);
    if (r < 0 || (r = session_take(s, false, true, cancel_fd, err)) < 0)
        return r;
    struct session *c = find_named(s, name, err);
    r = c ? copy_checkpoint(c, cancel_fd, &copy, err) : -ENOENT;
    session_unref(c);
    bool has_copy = r == 0;
    if (r == 0)
        r = keep_network(s, copy, err);
    if (r == 0) {
        exchange(s, copy);
        note_rollback(s, name);
        session_remember(s);
    }
    if (has_copy) {
        session_give(copy);
        session_delete(copy);
        session_unref(copy);
    }
    session_give(s);
    return r;
}
